"""The follow lane: the events of a reply after a given one, from its log or from its row.

Replay and live are the same read. It never shows what the log did not take, and it needs no
memory of its own: any gateway can go on where another one ended.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final

from tertulia.core.turn import is_terminal, stored_entries, terminal_entry
from tertulia.core.types import Entry, LogView, Status, Turn
from tertulia.ending import closing_entries
from tertulia.gateway.desk import Desk
from tertulia.gateway.line import Place
from tertulia.ports import StoreUnavailable

# A turn that ended before anybody answered has two events, the first and the last.
_NEVER_BEGUN = 2
# A follower that hears nothing looks at the turn this often: its end may never have been logged.
_IDLE_S = 1.0
# How far the news of a log may be behind its turn's row; on a busy machine some tenths of a second.
_NEWS_S = 1.0


@dataclass(frozen=True, slots=True)
class Reset:
    """The client drops the text so far: another attempt's events follow, from 1."""

    reason: str


@dataclass(frozen=True, slots=True)
class Gone:
    """The turn was deleted: there is nothing to follow any more."""


# What a follower is given next. No entries mean that nothing happened for a while: the moment for a
# ping. A place is where the turn stands in the line now; it is no part of the reply.
News = Sequence[Entry] | Reset | Gone | Place


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
    if turn.status.is_final and (meant, last_id) == (turn.attempt, turn.last_event_id):
        return Finished()
    if _was_told_by_row(turn, meant):
        return _resume_without_log(turn, last_id, meant)
    view = await _read(desk, turn, last_id)
    if view is not None and _may_be_over(view, turn, meant):
        view = None
    if view is None or not (_tells(view, turn) if turn.status.is_final else view.last):
        return _resume_without_log(turn, last_id, meant)
    if view.attempt != meant:
        return Resume(0, None, reset=True)
    if last_id > view.last and not view.in_doubt:
        return Ahead(view.last)
    return Resume(last_id, view.attempt)


def _resume_without_log(turn: Turn, last_id: int, meant: int) -> Resume | Finished | Ahead:
    if not turn.status.is_final:
        # Lost, or never claimed: an event that never was can't have been seen.
        return Resume(last_id, meant) if turn.epoch > 0 else Ahead(0)
    if meant != _stored(turn).attempt:
        ahead = meant == turn.attempt and last_id > turn.last_event_id
        return Ahead(turn.last_event_id) if ahead else Resume(0, None, reset=True)
    count = len(stored_entries(_stored(turn)))
    if last_id == count:
        return Finished()
    return Ahead(count) if last_id > count else Resume(last_id, meant)


async def follow_answer(
    desk: Desk, turn: Turn, *, after: int, attempt: int | None
) -> AsyncGenerator[News, None]:
    """Every event after `after` of `attempt` (None: whichever is there), then live, to the end."""
    if _was_told_by_row(turn, attempt):
        yield stored_entries(_stored(turn))[after:]
        return
    seen: tuple[int, int] | None = None
    place: Place | None = None
    while True:
        view = await _read(desk, turn, after)
        found = (view.attempt, view.last) if view is not None else (0, 0)
        shown = view if view is None or not _may_be_over(view, turn, attempt) else None
        if shown is not None and shown.last and attempt not in (None, shown.attempt):
            # Not before the other attempt has said something: an empty log may be a late claim's.
            yield Reset("buffer_lost")
            after, attempt = 0, None
            continue
        if shown is not None and shown.entries:
            yield shown.entries
            if is_terminal(shown.entries[-1].kind):
                return
            after, attempt = shown.last, shown.attempt
        elif found == seen or turn.status.is_final:
            # Only after a silence, so that a running stream costs no read of the store.
            end = await _end_without_log(desk, turn, after, attempt)
            if end is not None:
                for batch in end:
                    yield batch
                return
            before, place = place, await _place(desk, turn, view)
            yield place if place is not None and place != before else ()
        seen = found
        # For something else than what was read, not than what was sent: while the log is lost the
        # two differ, and the wait would end at once, again and again.
        await desk.log.wait(turn.reply_id, *found, timeout_s=_IDLE_S)


async def _place(desk: Desk, turn: Turn, view: LogView | None) -> Place | None:
    """Where a turn stands of which nothing was said yet. It is told after a silence at the soonest:
    of those who hardly wait nobody hears that they did."""
    if turn.status is not Status.QUEUED or (view is not None and view.last):
        return None
    return await desk.line.place(turn)


async def _end_without_log(
    desk: Desk, turn: Turn, after: int, attempt: int | None
) -> Sequence[News] | None:
    """The rest of a reply that has ended but whose log doesn't say so, or None: it goes on."""
    current = await desk.turns.find(turn.owner, turn.reply_id)
    if current is None:
        return (Gone(),)
    if not current.status.is_final:
        return None
    # The writer may have logged the end between the two reads: look once more.
    view = await _read(desk, current, after)
    if view is None or not _tells(view, current):
        if await desk.turns.find(turn.owner, turn.reply_id) != current:
            return None  # it was run again meanwhile: its new log is not for this end
        stored = _stored(current)
        if attempt is None or attempt == stored.attempt:
            return (stored_entries(stored)[after:],)
        return (Reset("buffer_expired"), stored_entries(stored))
    if attempt not in (None, view.attempt) and view.last and view.in_doubt:
        # Nobody writes to it any more, so the next read would show as little: the row tells it all.
        return (Reset("buffer_expired"), stored_entries(_stored(current)))
    if attempt not in (None, view.attempt):
        # The next read resets a follower of another attempt, unless there is nothing to read.
        return None if view.last else (Reset("buffer_lost"), _unlogged_end(current, view, 0))
    return None if view.entries else (_unlogged_end(current, view, after),)


async def _read(desk: Desk, turn: Turn, after: int) -> LogView | None:
    """What the log has. One that can't be reached is as good as gone where the row tells it all and
    nobody need be reset for that: who has seen some of it comes back for the rest.

    A log may be read from news of it, and the row be here before they are: what it says was logged
    is waited for, or a reader would be reset though nothing was lost.
    """
    until = desk.clock.now() + _NEWS_S
    try:
        while True:
            view = await desk.log.read(turn.reply_id, after)
            left = until - desk.clock.now()
            if view is None or not _is_behind(view, turn) or left <= 0:
                return view
            await desk.log.wait(turn.reply_id, view.attempt, view.last, timeout_s=left)
    except StoreUnavailable:
        if turn.status.is_final and not after:
            return None
        raise


def _is_behind(view: LogView, turn: Turn) -> bool:
    """Whether a final turn's row tells of more events of this attempt."""
    is_short = turn.status.is_final and view.last < turn.last_event_id
    return is_short and view.attempt == turn.attempt and not _tells(view, turn)


def _tells(view: LogView, turn: Turn) -> bool:
    """Whether this is the log that the finished turn ended with, whole but perhaps for its end.

    A claimer that slept before its first fence makes a new, empty log when the old one was lost.
    """
    unlogged = turn.last_event_id - view.last
    return view.attempt == turn.attempt and (
        unlogged in (0, 1) or (view.last == 0 and unlogged == _NEVER_BEGUN)
    )


def _may_be_over(view: LogView, turn: Turn, attempt: int | None) -> bool:
    """Whether a log in doubt shows less than its reader is owed: another attempt, or a final reply
    without its end. An open reply's owner or heir writes soon; a final one's row tells the rest."""
    if not view.in_doubt:
        return False
    return attempt not in (None, view.attempt) or (turn.status.is_final and not _tells(view, turn))


def _unlogged_end(turn: Turn, view: LogView, after: int) -> Sequence[Entry]:
    """The end that the writer did not live to log: the same bytes, under the next ids."""
    if view.last == 0:
        return closing_entries(turn, ())[after:]
    return (terminal_entry(view.last + 1, turn),)


def _was_told_by_row(turn: Turn, attempt: int | None) -> bool:
    """Whether a client follows a finished reply as its row tells it: it is not sent back to a log
    that could not be reached for a while."""
    return turn.status.is_final and attempt == _stored(turn).attempt


def _stored(turn: Turn) -> Turn:
    """The turn as its row tells it once the log is gone: an attempt of its own, after the last."""
    return turn._replace(attempt=turn.attempt + 1)
