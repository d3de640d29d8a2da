"""The steps of a stored turn as pure values, shared by every store so that they can't disagree.

Nothing here reads or writes anything: a store calls these inside its own transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from tertulia.core.canned import CANNED
from tertulia.core.quota import CAPPED_NOTICE, Reservation, accepted, cost, reserve
from tertulia.core.turn import EVENT_OF_END, next_status, stored_entries
from tertulia.core.types import (
    BudgetExhausted,
    Busy,
    Finish,
    Holding,
    KeyReused,
    Limits,
    Message,
    Missing,
    NewTurn,
    Note,
    Outcome,
    Reason,
    Repeated,
    Spent,
    Status,
    TitledBy,
    TooManyRunning,
    Turn,
    Usage,
)

# A stop holds the turn this long: enough to write the end, short enough that a worker takes over
# (and ends it as stopped) when the stopper dies in between.
SEIZE_LEASE_S: Final = 2.0

# Above every epoch: a deleted reply's log refuses its late writers, and so never comes back.
BURIED: Final = 1 << 62
# Writers stop within a lease; an hour is far beyond any of them.
BURIED_S: Final = 3600.0

# How a reply ended that its question was answered by, if it holds anything.
ANSWERED: Final = (Status.COMPLETED, Status.STOPPED)

# The kinds of turns that belong to no conversation.
LOOSE: Final = frozenset({"stateless", "line"})


class TreeMessage(Protocol):
    """A message's place in its tree: all that the door looks at."""

    @property
    def id(self) -> str: ...
    @property
    def role(self) -> str: ...
    @property
    def conversation_id(self) -> str: ...
    @property
    def parent_id(self) -> str | None: ...


class Placed(NamedTuple):
    """A `TreeMessage` and nothing else."""

    id: str
    role: str
    conversation_id: str
    parent_id: str | None


class OpenTurn(NamedTuple):
    """An open turn of a conversation. `parent_id` is the parent of its user message."""

    reply_id: str
    user_message_id: str | None
    parent_id: str | None


class Lookup(Protocol):
    """What the door asks of a store, inside its admitting transaction."""

    def has_left(self) -> bool:
        """Whether the owner's account was closed."""

    def has_conversation(self) -> bool: ...
    def was_deleted(self) -> bool:
        """Whether what was begun under this key was deleted from the conversation."""

    def goes_on(self) -> bool:
        """Whether something was said below the reply that was begun under this key."""

    def message(self, message_id: str | None) -> TreeMessage | None: ...
    def open_turns(self) -> Iterable[OpenTurn]:
        """The open turns of the conversation, oldest first."""

    def spent(self) -> Spent:
        """What the owner's row, balances and open turns say, read under its lock."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """A turn may be stored: under this parent, holding this reservation (none: it ends here).

    What else admission decides about a turn belongs here: `begun` writes it on the turn.
    """

    parent_id: str | None
    reservation: Reservation | None


Turned = KeyReused | Repeated | Missing | Busy | TooManyRunning | BudgetExhausted


def entrance(new: NewTurn, known: Turn | None, limits: Limits, lookup: Lookup) -> Entrance | Turned:
    """The door's decision, in the order that the port promises; `known` has the same key."""
    if known is not None:
        if known.body_sha != new.body_sha:
            return KeyReused()
        # What was said below it was answered without this reply. With one it would have had another
        # prompt, and whoever goes on with it after a crash would send that.
        if known.status is not Status.FAILED or lookup.goes_on():
            return Repeated(known)
    # A batch's pump, or a slow call, may still be at work for somebody who has just left.
    parent_id = Missing() if lookup.has_left() else _place(new, known, lookup)
    if isinstance(parent_id, Missing | Busy):
        return parent_id
    # A failed turn that runs again is answered as any other: its reply has a place already.
    if new.refusal is not None or (new.canned is not None and known is None):
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
    if new.kind in LOOSE:
        return None
    if new.conversation_id is None or new.user_message_id is None:
        return Missing()
    if not lookup.has_conversation() or (known is None and lookup.was_deleted()):
        return Missing()
    parent_id = new.parent_id
    if new.kind == "regenerate" or known is not None:
        asked_id = known.user_message_id if known is not None else new.user_message_id
        asked = lookup.message(asked_id)
        if asked is None or asked.role != "user" or asked.conversation_id != new.conversation_id:
            return Missing()
        parent_id = asked.parent_id
        new = new._replace(user_message_id=asked.id)
    elif parent_id is not None:
        parent = lookup.message(parent_id)
        if parent is None or parent.conversation_id != new.conversation_id:
            return Missing()
    for turn in lookup.open_turns():
        if is_busy(turn, new, parent_id):
            return Busy(turn.reply_id)
    return parent_id


def holding_of(turn: Turn) -> Holding:
    """An open turn as a claim on its owner's budgets."""
    names = tuple(budget.name for budget in turn.budgets)
    return Holding(turn.reply_id, turn.lane, turn.worst_case, names)


def joined(first: Sequence[str], second: Sequence[str]) -> tuple[str, ...]:
    """Both lists of notices in order, each word once."""
    return tuple(dict.fromkeys((*first, *second)))


def begun(new: NewTurn, limits: Limits, place: Entrance, now: float) -> Turn:
    """The turn as admission stores it: queued, or final if it was refused or has a ready reply."""
    reservation = place.reservation
    turn = Turn(
        owner=new.owner,
        key=new.key,
        body_sha=new.body_sha,
        kind=new.kind,
        reply_id=new.reply_id,
        plan=new.plan,
        lane=limits.lane,
        requested=new.requested,
        answer_tokens=new.answer_tokens,
        reserved=0,
        sampling=new.sampling,
        status=Status.QUEUED,
        epoch=0,
        attempt=1,
        created_at=now,
        conversation_id=None if new.kind in LOOSE else new.conversation_id,
        user_message_id=new.user_message_id,
        prompt=new.prompt,
        notices=new.notices,
        followed_at=now,
        prompt_tokens=new.prompt_tokens,
        difficulty=new.difficulty,
        awaited=new.awaited,
        reason=new.lowered,
    )
    if reservation is None:
        turn = _ended_at_once(turn, new)._replace(finished_at=now)
        return turn._replace(last_event_id=len(stored_entries(turn)))
    return turn._replace(
        reserved=reservation.tokens,
        answer_tokens=reservation.answer_tokens,
        budgets=limits.budgets,
        abandon_s=limits.abandon_s,
        notices=joined(new.notices, (CAPPED_NOTICE,) if reservation.capped else ()),
    )


def _ended_at_once(turn: Turn, new: NewTurn) -> Turn:
    if new.refusal is not None:
        status = next_status(turn.status, "refuse")
        return turn._replace(status=status, finish=Finish.REFUSED, refusal=new.refusal)
    assert new.canned is not None
    return turn._replace(
        status=next_status(turn.status, "can"),
        finish=Finish.STOP,
        text=new.canned.text,
        model=CANNED,
        reason=Reason.LADDER,
        notices=joined(turn.notices, (CANNED,)),
    )


def rerun(
    failed: Turn, new: NewTurn, limits: Limits, place: Entrance, now: float, *, attempt: int
) -> Turn:
    """A failed turn begun again: same ids, the next epoch (so its old owner can't write)."""
    next_status(failed.status, "rerun")
    return begun(new, limits, place, now)._replace(
        reply_id=failed.reply_id,
        conversation_id=failed.conversation_id,
        user_message_id=failed.user_message_id,
        epoch=failed.epoch + 1,
        attempt=attempt,
    )


def attempt_of_rerun(failed: Turn, log_attempt: int) -> int:
    """Above the log's attempt, and above the one under which the row tells its end once the log is
    lost, which readers may have seen."""
    return max(failed.attempt + 1, log_attempt) + 1


def seized(turn: Turn, reason: str, now: float) -> Turn:
    """The turn held by a stop."""
    return turn._replace(
        status=next_status(turn.status, "seize"),
        epoch=turn.epoch + 1,
        lease_until=now + SEIZE_LEASE_S,
        stop_reason=reason,
    )


def claimed(turn: Turn, until: float) -> Turn:
    """The turn held by a worker."""
    status = next_status(turn.status, "claim")
    return turn._replace(status=status, epoch=turn.epoch + 1, lease_until=until)


def noted(turn: Turn, note: Note) -> Turn:
    """The turn once it is known who answers."""
    return turn._replace(
        attempt=note.attempt,
        model=note.model,
        reason=note.reason,
        replica=note.replica,
        request_id=note.request_id,
        prompt_tokens=note.prompt_tokens,
        summary_id=note.summary_id,
        notices=joined(turn.notices, note.notices),
    )


def finished(turn: Turn, outcome: Outcome, now: float) -> Turn:
    """The turn at its end; ValueError if it can't end so, or would cost more than was reserved."""
    status = next_status(turn.status, EVENT_OF_END[outcome.status])
    demand_accepted(outcome, turn.worst_case)
    return turn._replace(
        status=status,
        attempt=outcome.attempt,
        finish=outcome.finish,
        text=outcome.text,
        usage=outcome.usage,
        charged=cost("units", outcome.usage),
        last_event_id=outcome.last_event_id,
        notices=joined(turn.notices, outcome.notices),
        refusal=outcome.refusal,
        failure=outcome.failure,
        finished_at=now,
        lease_until=None,
        budgets=(),
        abandon_s=None,
    )


def demand_accepted(outcome: Outcome, worst_case: Usage) -> None:
    """ValueError for a usage that was not clamped to what was reserved for the turn."""
    if accepted(outcome.usage, worst_case) != outcome.usage:
        raise ValueError(f"{outcome.usage} is not within the {worst_case} that was reserved")


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


def reply_message(turn: Turn, new: NewTurn, seq: int) -> Message:
    """The reply's place in the tree, empty until the turn is final."""
    assert turn.conversation_id is not None
    ready = new.canned if turn.status is Status.COMPLETED else None
    return Message(
        owner=turn.owner,
        conversation_id=turn.conversation_id,
        id=turn.reply_id,
        parent_id=turn.user_message_id,
        seq=seq,
        role="assistant",
        content=turn.text,
        tokens=ready.tokens if ready is not None else 0,
        tokenizer=new.tokenizer if ready is not None else "",
        status=turn.status,
        created_at=turn.created_at,
        model=turn.model,
        reason=turn.reason,
        requested=turn.requested,
        finish=turn.finish,
        notices=turn.notices,
        last_event_id=turn.last_event_id or None,
    )


def reply_after(message: Message, turn: Turn, outcome: Outcome | None = None) -> Message:
    """The reply message as it shows `turn`; with `outcome`, its text and tokens too."""
    shown = message._replace(
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
        return shown._replace(content="", tokens=0, tokenizer="", ids=None)
    return shown._replace(
        content=outcome.text,
        tokens=len(outcome.ids),
        tokenizer=outcome.tokenizer,
        ids=outcome.ids,
    )


def loses_title(
    title: str, titled_by: TitledBy, *, asked: Iterable[str], answered_above: bool
) -> bool:
    """Whether a title holds words of what is deleted: the first ones of one of the questions that
    were `asked` there; or what a model made of the first exchange, which is not among what goes
    where a question above it was answered."""
    if titled_by == "model":
        return not answered_above
    words = title.removesuffix("…")
    return bool(words) and any(" ".join(text.split()).startswith(words) for text in asked)


def is_busy(open_turn: OpenTurn, new: NewTurn, parent_id: str | None) -> bool:
    """Whether an open turn of the same conversation stands in the way of `new` (S-22).

    `parent_id` is the parent of the new turn's user message.
    """
    if open_turn.reply_id == parent_id or open_turn.user_message_id == new.user_message_id:
        return True
    return new.kind == "message" and open_turn.parent_id == parent_id
