"""The steps of a stored turn as pure values, shared by every store so that they can't disagree.

Nothing here reads or writes anything: a store calls these inside its own transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from tertulia.core.quota import Reservation, reserve
from tertulia.core.turn import EVENT_OF_END, next_status, stored_entries
from tertulia.core.types import (
    BudgetExhausted,
    Busy,
    Finish,
    KeyReused,
    Limits,
    Message,
    Missing,
    NewTurn,
    Note,
    Outcome,
    Repeated,
    Spent,
    Status,
    TooManyRunning,
    Turn,
)

# A stop holds the turn this long: enough to write the end, short enough that a worker takes over
# (and ends it as stopped) when the stopper dies in between.
SEIZE_LEASE_S: Final = 2.0

# Above every epoch: a deleted reply's log refuses its late writers, and so never comes back.
BURIED: Final = 1 << 62
# Writers stop within a lease; an hour is far beyond any of them.
BURIED_S: Final = 3600.0

CAPPED: Final = "answer_capped"


class Lookup(Protocol):
    """What the door asks of a store, inside its admitting transaction."""

    def has_conversation(self) -> bool: ...
    def message(self, message_id: str | None) -> Message | None: ...
    def open_turns(self) -> Iterable[tuple[Turn, str | None]]:
        """The conversation's open turns, each with the parent of its user message."""

    def spent(self) -> Spent: ...


@dataclass(frozen=True, slots=True)
class Entrance:
    """A turn may be stored: under this parent, holding this reservation (none: it is refused)."""

    parent_id: str | None
    reservation: Reservation | None


Turned = KeyReused | Repeated | Missing | Busy | TooManyRunning | BudgetExhausted


def entrance(new: NewTurn, known: Turn | None, limits: Limits, lookup: Lookup) -> Entrance | Turned:
    """The door's decision, in the order that the port promises; `known` has the same key."""
    if known is not None:
        if known.body_sha != new.body_sha:
            return KeyReused()
        if known.status is not Status.FAILED:
            return Repeated(known)
    parent_id = _place(new, known, lookup)
    if isinstance(parent_id, Missing | Busy):
        return parent_id
    if new.refusal is not None:
        return Entrance(parent_id, None)
    answer = reserve(
        lookup.spent(),
        limits,
        prompt_tokens=new.prompt_tokens,
        answer_tokens=new.answer_tokens,
    )
    return Entrance(parent_id, answer) if isinstance(answer, Reservation) else answer


def _place(new: NewTurn, known: Turn | None, lookup: Lookup) -> str | Missing | Busy | None:
    """The parent of the user's message, or what is missing or in the way in the tree."""
    if new.kind == "stateless":
        return None
    if new.conversation_id is None or new.user_message_id is None:
        return Missing()
    if not lookup.has_conversation():
        return Missing()
    parent_id = new.parent_id
    if new.kind == "regenerate" or known is not None:
        asked_id = known.user_message_id if known is not None else new.user_message_id
        asked = lookup.message(asked_id)
        if asked is None or asked.role != "user" or asked.conversation_id != new.conversation_id:
            return Missing()
        parent_id = asked.parent_id
        new = replace(new, user_message_id=asked.id)
    elif parent_id is not None:
        parent = lookup.message(parent_id)
        if parent is None or parent.conversation_id != new.conversation_id:
            return Missing()
    for turn, open_parent in lookup.open_turns():
        if is_busy(turn, open_parent, new, parent_id):
            return Busy(turn.reply_id)
    return parent_id


def joined(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """Both lists of notices in order, each word once."""
    return tuple(dict.fromkeys((*first, *second)))


def begun(new: NewTurn, reservation: Reservation | None, now: float) -> Turn:
    """The turn as admission stores it: queued, or final when its input was refused."""
    turn = Turn(
        owner=new.owner,
        key=new.key,
        body_sha=new.body_sha,
        kind=new.kind,
        reply_id=new.reply_id,
        plan=new.plan,
        requested=new.requested,
        answer_tokens=new.answer_tokens,
        reserved=0,
        sampling=new.sampling,
        status=Status.QUEUED,
        epoch=0,
        attempt=1,
        created_at=now,
        conversation_id=None if new.kind == "stateless" else new.conversation_id,
        user_message_id=new.user_message_id,
        prompt=new.prompt,
        notices=new.notices,
        followed_at=now,
        prompt_tokens=new.prompt_tokens,
    )
    if reservation is None:
        assert new.refusal is not None
        turn = replace(
            turn,
            status=next_status(turn.status, "refuse"),
            finish=Finish.REFUSED,
            refusal=new.refusal,
            finished_at=now,
        )
        return replace(turn, last_event_id=len(stored_entries(turn)))
    return replace(
        turn,
        reserved=reservation.tokens,
        answer_tokens=reservation.answer_tokens,
        notices=joined(new.notices, (CAPPED,) if reservation.capped else ()),
    )


def rerun(
    failed: Turn, new: NewTurn, reservation: Reservation | None, now: float, *, attempt: int
) -> Turn:
    """A failed turn begun again: same ids, the next epoch (so its old owner can't write)."""
    next_status(failed.status, "rerun")
    return replace(
        begun(new, reservation, now),
        reply_id=failed.reply_id,
        conversation_id=failed.conversation_id,
        user_message_id=failed.user_message_id,
        epoch=failed.epoch + 1,
        attempt=attempt,
    )


def seized(turn: Turn, reason: str, now: float) -> Turn:
    """The turn held by a stop."""
    return replace(
        turn,
        status=next_status(turn.status, "seize"),
        epoch=turn.epoch + 1,
        lease_until=now + SEIZE_LEASE_S,
        stop_reason=reason,
    )


def noted(turn: Turn, note: Note) -> Turn:
    """The turn once it is known who answers."""
    return replace(
        turn,
        attempt=note.attempt,
        model=note.model,
        reason=note.reason,
        replica=note.replica,
        request_id=note.request_id,
        prompt_tokens=note.prompt_tokens,
        notices=joined(turn.notices, note.notices),
    )


def finished(turn: Turn, outcome: Outcome, now: float) -> Turn:
    """The turn at its end; ValueError if it can't end so."""
    return replace(
        turn,
        status=next_status(turn.status, EVENT_OF_END[outcome.status]),
        attempt=outcome.attempt,
        finish=outcome.finish,
        text=outcome.text,
        usage=outcome.usage,
        charged=outcome.charged,
        last_event_id=outcome.last_event_id,
        notices=joined(turn.notices, outcome.notices),
        refusal=outcome.refusal,
        failure=outcome.failure,
        finished_at=now,
        lease_until=None,
    )


def user_message(new: NewTurn, seq: int, now: float) -> Message:
    """What the user said, as admission stores it."""
    assert new.conversation_id is not None
    assert new.user_message_id is not None
    return Message(
        owner=new.owner,
        conversation_id=new.conversation_id,
        id=new.user_message_id,
        parent_id=new.parent_id,
        seq=seq,
        role="user",
        content=new.content,
        tokens=new.content_tokens,
        tokenizer=new.tokenizer,
        status=Status.COMPLETED,
        created_at=now,
    )


def reply_message(turn: Turn, seq: int) -> Message:
    """The reply's place in the tree, empty until the turn is final."""
    assert turn.conversation_id is not None
    return Message(
        owner=turn.owner,
        conversation_id=turn.conversation_id,
        id=turn.reply_id,
        parent_id=turn.user_message_id,
        seq=seq,
        role="assistant",
        content="",
        tokens=0,
        tokenizer="",
        status=turn.status,
        created_at=turn.created_at,
        requested=turn.requested,
        finish=turn.finish,
        notices=turn.notices,
        last_event_id=turn.last_event_id or None,
    )


def reply_after(message: Message, turn: Turn, outcome: Outcome | None = None) -> Message:
    """The reply message as it shows `turn`; with `outcome`, its text and tokens too."""
    shown = replace(
        message,
        status=turn.status,
        model=turn.model,
        requested=turn.requested,
        reason=turn.reason,
        finish=turn.finish,
        notices=turn.notices,
        failure=turn.failure,
        last_event_id=(turn.last_event_id or None) if turn.status.is_final else None,
    )
    if outcome is None:
        return replace(shown, content="", tokens=0, tokenizer="", ids=None)
    return replace(
        shown,
        content=outcome.text,
        tokens=len(outcome.ids),
        tokenizer=outcome.tokenizer,
        ids=outcome.ids,
    )


def is_busy(open_turn: Turn, open_parent: str | None, new: NewTurn, parent_id: str | None) -> bool:
    """Whether an open turn of the same conversation stands in the way of `new` (S-22).

    `parent_id` and `open_parent` are the parents of the two user messages.
    """
    if open_turn.reply_id == parent_id or open_turn.user_message_id == new.user_message_id:
        return True
    return new.kind == "message" and open_parent == parent_id
