"""The follow lane: the events of a reply after a given one, from its log or from its row.

Replay and live are the same read. It never shows what the log did not take, and it needs no
memory of its own: any gateway can go on where another one ended.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tertulia.core.turn import is_terminal, stored_entries, terminal_entry
from tertulia.core.types import Entry, LogView, Turn
from tertulia.ending import closing_entries
from tertulia.gateway.desk import Desk

# A turn that ended before anybody answered has two events, the first and the last.
_NEVER_BEGUN = 2
# A follower that hears nothing looks at the turn this often: its end may never have been logged.
_IDLE_S = 1.0


@dataclass(frozen=True, slots=True)
class Reset:
    """The client drops the text so far: another attempt's events follow, from 1."""

    reason: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The turn was deleted: there is nothing to follow any more."""


# An empty batch means that nothing happened for a while: the moment for a ping.
Batch = Sequence[Entry] | Reset | Gone


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a client goes on: after this id of this attempt; `reset` if it must start anew."""

    after: int
    attempt: int | None
    reset: bool = False


BEGINNING: Final = Resume(0, None)


@dataclass(frozen=True, slots=True)
class Finished:
    """The client has seen everything."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The client names an event that does not exist; the newest is `last`."""

    last: int


async def resume_point(
    desk: Desk, turn: Turn, last_id: int | None, attempt: int | None
) -> Resume | Finished | Ahead:
    """What the last id (and the attempt, if the client knows it) mean now.

    A client that names no attempt is taken to mean the first: after a reset it would otherwise be
    given the rest of another text.
    """
    if not last_id:
        return BEGINNING
    meant = attempt or 1
    view = await desk.log.read(turn.reply_id, last_id)
    if view is None or not (_tells(view, turn) if turn.status.is_final else view.last):
        return _resume_without_log(turn, last_id, meant)
    if view.attempt != meant:
        return Resume(0, None, reset=True)
    end = turn.last_event_id if turn.status.is_final else None
    if last_id == end:
        return Finished()
    if last_id > view.last:
        return Ahead(view.last)
    return Resume(last_id, view.attempt)


def _resume_without_log(turn: Turn, last_id: int, meant: int) -> Resume | Finished | Ahead:
    if not turn.status.is_final:
        # Lost, or never claimed: an event that never was can't have been seen.
        return Resume(last_id, meant) if turn.epoch > 0 else Ahead(0)
    if meant == turn.attempt and last_id == turn.last_event_id:
        return Finished()
    if meant != _stored(turn).attempt:
        ahead = meant == turn.attempt and last_id > turn.last_event_id
        return Ahead(turn.last_event_id) if ahead else Resume(0, None, reset=True)
    count = len(stored_entries(_stored(turn)))
    if last_id == count:
        return Finished()
    return Ahead(count) if last_id > count else Resume(last_id, meant)


async def follow_answer(
    desk: Desk, turn: Turn, *, after: int, attempt: int | None
) -> AsyncGenerator[Batch, None]:
    """Every event after `after` of `attempt` (None: whichever is there), then live, to the end."""
    heard = False
    while True:
        view = await desk.log.read(turn.reply_id, after)
        if view is not None and view.last and attempt not in (None, view.attempt):
            # Not before the other attempt has said something: an empty log may be a late claim's.
            yield Reset("buffer_lost")
            after, attempt = 0, None
            continue
        if view is not None and view.entries:
            yield view.entries
            if is_terminal(view.entries[-1].kind):
                return
            after, attempt, heard = view.last, view.attempt, True
            continue
        if not heard:
            # Only after a silence, so that a running stream costs no read of the store.
            end = await _end_without_log(desk, turn, after, attempt)
            if end is not None:
                for batch in end:
                    yield batch
                return
            yield ()
        heard = False
        # For something else than what was read, not than what was sent: while the log is lost the
        # two differ, and the wait would end at once, again and again.
        read = (view.attempt, view.last) if view is not None else (0, 0)
        await desk.log.wait(turn.reply_id, *read, timeout_s=_IDLE_S)


async def _end_without_log(
    desk: Desk, turn: Turn, after: int, attempt: int | None
) -> Sequence[Batch] | None:
    """The rest of a reply that has ended but whose log doesn't say so, or None: it goes on."""
    current = await desk.turns.find(turn.owner, turn.reply_id)
    if current is None:
        return (Gone(),)
    if not current.status.is_final:
        return None
    # The writer may have logged the end between the two reads: look once more.
    view = await desk.log.read(turn.reply_id, after)
    if view is None or not _tells(view, current):
        if await desk.turns.find(turn.owner, turn.reply_id) != current:
            return None  # it was run again meanwhile: its new log is not for this end
        stored = _stored(current)
        if attempt is None or attempt == stored.attempt:
            return (stored_entries(stored)[after:],)
        return (Reset("buffer_expired"), stored_entries(stored))
    if attempt not in (None, view.attempt):
        # The next read resets a follower of another attempt, unless there is nothing to read.
        return None if view.last else (Reset("buffer_lost"), _unlogged_end(current, view, 0))
    return None if view.entries else (_unlogged_end(current, view, after),)


def _tells(view: LogView, turn: Turn) -> bool:
    """Whether this is the log that the finished turn ended with, whole but perhaps for its end.

    A claimer that slept before its first fence makes a new, empty log when the old one was lost.
    """
    unlogged = turn.last_event_id - view.last
    return view.attempt == turn.attempt and (
        unlogged in (0, 1) or (view.last == 0 and unlogged == _NEVER_BEGUN)
    )


def _unlogged_end(turn: Turn, view: LogView, after: int) -> Sequence[Entry]:
    """The end that the writer did not live to log: the same bytes, under the next ids."""
    if view.last == 0:
        return closing_entries(turn, ())[after:]
    return (terminal_entry(view.last + 1, turn),)


def _stored(turn: Turn) -> Turn:
    """The turn as its row tells it once the log is gone: an attempt of its own, after the last."""
    return replace(turn, attempt=turn.attempt + 1)
