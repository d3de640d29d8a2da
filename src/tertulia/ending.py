"""Ends an open turn from outside its writer: stop, abandonment, deletion, staleness.

This is step 7 of the turn protocol, shared by the gateway's stop and the worker's chores: claim
over any lease, fence the log so that the old writer can't append, then finish with what it held.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tertulia.core.quota import accepted
from tertulia.core.turn import ids_so_far, meta_entry, terminal_entry, text_so_far
from tertulia.core.types import (
    Entry,
    Failure,
    Fenced,
    Finish,
    Outcome,
    Refusal,
    Status,
    Turn,
    Usage,
)
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
        fenced = await take_log(tools.log, seized)
        if fenced is None:
            continue  # a newer claim fenced first: claim over it
        outcome = outcome_of(
            seized,
            fenced.entries,
            attempt=fenced.attempt,
            status=Status.FAILED if failure else Status.STOPPED,
            finish=None if failure else finish,
            failure=failure,
            tokenizer=tools.vocabulary(seized.model).name if seized.model else "",
        )
        # The fence keeps out whatever its old writer still hears: the replica is told at once, not
        # after the end is stored.
        is_ours, aborted = await asyncio.gather(
            _store_end(tools, seized, fenced, outcome),
            _abort(tools, seized),
            return_exceptions=True,  # both have ended when one of them failed
        )
        for result in (is_ours, aborted):
            if isinstance(result, BaseException):
                raise result
        if is_ours:
            break
    return await tools.turns.find(turn.owner, turn.reply_id)


async def take_log(log: Log, turn: Turn) -> Fenced | None:
    """Fences the log for the turn's claim; None if a newer claim has it.

    An empty log of an attempt that was noted is not the one it was noted for: that one was lost,
    and a claimer who had slept through it all made this one. Another attempt begins, as readers
    have perhaps seen the other's events under these numbers.
    """
    fenced = await log.fence(turn.reply_id, turn.epoch, turn.attempt)
    if fenced is None or fenced.entries or turn.model is None or fenced.attempt > turn.attempt:
        return fenced
    return await log.fence(turn.reply_id, turn.epoch, turn.attempt + 1)


async def _store_end(tools: Ending, seized: Turn, fenced: Fenced, outcome: Outcome) -> bool:
    """Finishes the turn and its log; False if a newer claim has it."""
    if not await tools.turns.finish(seized.held, outcome):
        return False
    ended = await tools.turns.find(seized.owner, seized.reply_id)
    if ended is not None:
        closing = closing_entries(ended, fenced.entries)
        await tools.log.append(seized.reply_id, seized.epoch, fenced.attempt, closing)
    tools.bell.ring("turns")
    return True


async def _abort(tools: Ending, seized: Turn) -> None:
    if seized.replica is not None and seized.request_id is not None:
        await tools.replicas.abort(seized.replica, seized.request_id)


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

    The prompt is charged once a replica was asked; the output is what was released; neither beyond
    what was reserved. A turn whose log ends with a refusal is refused, whoever ends it: its readers
    have been told so.
    """
    refusal = refusal_of(entries)
    if refusal is not None:
        status, finish, failure = Status.REFUSED, Finish.REFUSED, None
    ids = ids_so_far(entries)
    asked = turn.request_id is not None
    counted = Usage(input=turn.prompt_tokens if asked else 0, cached=cached_tokens, output=len(ids))
    usage = accepted(counted, turn.worst_case)
    missing_meta = 0 if entries else 1
    return Outcome(
        status=status,
        attempt=attempt,
        finish=finish,
        text=text_so_far(entries),
        usage=usage,
        last_event_id=len(entries) + missing_meta + 1,
        ids=ids,
        tokenizer=tokenizer,
        notices=turn.notices,
        refusal=refusal,
        failure=failure,
        clamped=usage != counted,
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
