"""Ends an open turn from outside its writer: stop, abandonment, deletion, staleness.

This is step 7 of the turn protocol, shared by the gateway's stop and the worker's chores: claim
over any lease, fence the log so that the old writer can't append, then finish with what it held.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tertulia.core.quota import charge
from tertulia.core.turn import ids_so_far, meta_entry, terminal_entry, text_so_far
from tertulia.core.types import Entry, Failure, Finish, Outcome, Refusal, Status, Turn, Usage
from tertulia.ports import Bell, Log, Replicas, Turns, Vocabulary

# Each try loses only to a newer claim; a worker claims at most once a lease, so few are enough.
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Ending:
    """The ports that ending a turn needs."""

    turns: Turns
    log: Log
    replicas: Replicas
    bell: Bell
    vocabulary: Callable[[str], Vocabulary]


async def end_turn(
    tools: Ending,
    turn: Turn,
    *,
    why: str,
    finish: Finish | None = Finish.STOPPED,
    failure: Failure | None = None,
) -> Turn | None:
    """The turn as it stands afterwards (final), or None if it was deleted meanwhile.

    With a `failure` it ends as failed, else as stopped, or refused if its log says so already; its
    text is kept, and what was produced is charged. A turn that is already final is returned as it
    is. Returns once the replica has dropped the sequence.
    """
    for _ in range(_TRIES):
        seized = await tools.turns.seize(turn.owner, turn.reply_id, why)
        if seized is None:
            return await tools.turns.find(turn.owner, turn.reply_id)
        fenced = await tools.log.fence(seized.reply_id, seized.epoch, seized.attempt)
        if fenced is None:
            continue  # a newer claim fenced first: claim over it
        entries = fenced.entries
        outcome = outcome_of(
            seized,
            entries,
            attempt=fenced.attempt,
            status=Status.FAILED if failure else Status.STOPPED,
            finish=None if failure else finish,
            failure=failure,
            tokenizer=tools.vocabulary(seized.model).name if seized.model else "",
        )
        if not await tools.turns.finish(seized.reply_id, seized.epoch, outcome):
            continue
        ended = await tools.turns.find(turn.owner, turn.reply_id)
        if ended is not None:
            closing = closing_entries(ended, entries)
            await tools.log.append(seized.reply_id, seized.epoch, fenced.attempt, closing)
        tools.bell.ring("turns")
        if seized.replica is not None and seized.request_id is not None:
            await tools.replicas.abort(seized.replica, seized.request_id)
        return ended
    return await tools.turns.find(turn.owner, turn.reply_id)


def outcome_of(
    turn: Turn,
    entries: tuple[Entry, ...],
    *,
    attempt: int,
    status: Status,
    finish: Finish | None,
    failure: Failure | None,
    tokenizer: str,
    cached_tokens: int = 0,
) -> Outcome:
    """What a turn costs and keeps when it is ended with the log `entries`.

    The prompt is charged once a replica was asked; the output is what was released. A turn whose
    log ends with a refusal is refused, whoever ends it: its readers have been told so.
    """
    refusal = refusal_of(entries)
    if refusal is not None:
        status, finish, failure = Status.REFUSED, Finish.REFUSED, None
    ids = ids_so_far(entries)
    asked = turn.request_id is not None
    usage = Usage(
        input=turn.prompt_tokens if asked else 0,
        cached=min(cached_tokens, turn.prompt_tokens),
        output=len(ids),
    )
    missing_meta = 0 if entries else 1
    return Outcome(
        status=status,
        attempt=attempt,
        finish=finish,
        text=text_so_far(entries),
        usage=usage,
        charged=charge(usage, reserved=turn.reserved),
        last_event_id=len(entries) + missing_meta + 1,
        ids=ids,
        tokenizer=tokenizer,
        notices=turn.notices,
        refusal=refusal,
        failure=failure,
    )


def refusal_of(entries: Sequence[Entry]) -> Refusal | None:
    """The refusal that a log ends with: its writer died before the finish, and nothing may follow
    a flag."""
    if not entries or entries[-1].kind != "refusal":
        return None
    return Refusal(**json.loads(entries[-1].data))


def closing_entries(turn: Turn, entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The events that a finished turn's log still lacks: `meta` if it never began, and the end."""
    added: list[Entry] = []
    if not entries:
        added.append(meta_entry(1, turn))
    added.append(terminal_entry(len(entries) + len(added) + 1, turn))
    return tuple(added)
