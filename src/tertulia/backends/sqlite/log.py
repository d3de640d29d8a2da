"""Logs of replies: written through the one writer, read from memory.

A tail in memory holds only what is committed, in the order of the commits, so that followers of a
live reply never ask the database. Any tail can be dropped: it is read again from its table.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from tertulia.backends.bell import Sleepers
from tertulia.backends.gaps import going_on, is_gapless
from tertulia.backends.sql import statements
from tertulia.backends.sqlite.writer import Writer
from tertulia.backends.tail_memory import TAIL_BYTES, size_of
from tertulia.backends.transitions import BURIED, BURIED_S
from tertulia.core.types import Append, Entry, Fenced, LogView
from tertulia.ports import Clock

SQL: Final = statements("sqlite", "log")
HEAD: Final = SQL["head"]
GO_ON: Final = SQL["go_on"]
ADD_ENTRY: Final = SQL["add_entry"]

_TAIL_BYTES: Final = 500
# Logs dropped in one transaction: nobody waits long behind it.
DROP_AT_ONCE: Final = 100


@dataclass(slots=True)
class _Tail:
    attempt: int
    entries: list[Entry]
    size: int


_MISSING: Final = 0  # the attempt of a tail whose log is not there


class SqliteLog:
    """The `Log` port. Its memory belongs to the event loop."""

    def __init__(self, writer: Writer, clock: Clock, *, tail_bytes: int = TAIL_BYTES) -> None:
        self._writer = writer
        self._clock = clock
        self._sleepers = Sleepers()
        self._tails: OrderedDict[str, _Tail] = OrderedDict()
        self._loading: dict[str, asyncio.Future[Fenced | None]] = {}
        self._size = 0
        self._tail_bytes = tail_bytes

    async def fence(self, reply_id: str, epoch: int, attempt: int) -> Fenced | None:
        """Takes the log for `epoch`, or None if a later one has it."""

        def after(fenced: Fenced | None) -> None:
            if fenced is not None:
                self._keep(reply_id, fenced)
                self._sleepers.wake(reply_id)

        return await self._writer.put(partial(_fence, reply_id, epoch, attempt), after)

    async def append(
        self, reply_id: str, epoch: int, attempt: int, entries: Sequence[Entry]
    ) -> Append:
        """All entries or none, only for the holder of the fence and without a gap."""
        entries = tuple(entries)

        def after(answer: Append) -> None:
            if answer is not Append.DONE:
                return
            tail = self._tails.get(reply_id)
            # Else they were there before: their writer asked again.
            if tail is not None and entries and entries[0].seq == len(tail.entries) + 1:
                assert tail.attempt == attempt
                tail.entries.extend(entries)
                self._grow(tail, entries)
            self._sleepers.wake(reply_id)

        return await self._writer.put(partial(_append, reply_id, epoch, attempt, entries), after)

    async def reseed(
        self, reply_id: str, epoch: int, attempt: int, entries: Sequence[Entry]
    ) -> Append:
        """Writes a log again that was lost, or that has lost its end."""
        entries = tuple(entries)

        def after(answer: Append) -> None:
            if answer is Append.DONE:
                self._keep(reply_id, Fenced(attempt, entries))
                self._sleepers.wake(reply_id)

        return await self._writer.put(partial(_reseed, reply_id, epoch, attempt, entries), after)

    async def read(self, reply_id: str, after: int) -> LogView | None:
        """What is there now."""
        tail = await self._tail(reply_id)
        if tail.attempt == _MISSING:
            return None
        return LogView(tail.attempt, len(tail.entries), tail.entries[max(0, after) :])

    async def wait(self, reply_id: str, attempt: int, after: int, *, timeout_s: float) -> None:
        """Returns when there is something else than (`attempt`, `after`)."""
        tail = await self._tail(reply_id)
        if tail.attempt == _MISSING:
            differs = after > 0
        else:
            differs = tail.attempt != attempt or len(tail.entries) != after
        if not differs:
            await self._sleepers.sleep(reply_id, timeout_s=timeout_s)

    async def drop(
        self, *, older_than_s: float | None = None, reply_ids: Sequence[str] = ()
    ) -> int:
        """Deletes logs of turns that finished long ago, or those named."""
        waiting = list(dict.fromkeys(reply_ids))
        if older_than_s is not None:
            now = self._clock.now()
            old = partial(_finished_before, now - older_than_s, now - BURIED_S)
            waiting = list(dict.fromkeys((*waiting, *await self._writer.put(old))))
        count = 0
        for first in range(0, len(waiting), DROP_AT_ONCE):
            some = waiting[first : first + DROP_AT_ONCE]
            count += await self._writer.put(partial(_drop, some), partial(self._dropped, some))
        return count

    async def bury(self, reply_ids: Sequence[str]) -> None:
        """Removes logs for good: nobody, not even their live owner, can write them again."""
        now, gone = self._clock.now(), tuple(reply_ids)
        await self._writer.put(
            lambda database: bury_logs(database, gone, now), lambda _: self.forget(gone)
        )

    def forget(self, reply_ids: Sequence[str]) -> None:
        """The database has other logs now under these ids: whoever reads asks it again."""
        for reply_id in reply_ids:
            tail = self._tails.pop(reply_id, None)
            if tail is not None:
                self._size -= tail.size
            self._sleepers.wake(reply_id)

    async def _tail(self, reply_id: str) -> _Tail:
        """The tail in memory, read from its table once if it isn't there."""
        tail = self._tails.get(reply_id)
        if tail is None:
            loading = self._loading.get(reply_id)
            if loading is None:
                # Through the writer: so no commit falls between what is read and what is kept.
                loading = self._writer.put(
                    partial(_load, reply_id), partial(self._loaded, reply_id)
                )
                self._loading[reply_id] = loading
                loading.add_done_callback(lambda _: self._loading.pop(reply_id, None))
            found = await asyncio.shield(loading)
            tail = self._tails.get(reply_id) or _tail_of(found)
        else:
            self._tails.move_to_end(reply_id)
        return tail

    def _dropped(self, reply_ids: Sequence[str], _: int) -> None:
        self.forget(reply_ids)

    def _loaded(self, reply_id: str, found: Fenced | None) -> None:
        self._keep(reply_id, found)

    def _keep(self, reply_id: str, found: Fenced | None) -> None:
        old = self._tails.pop(reply_id, None)
        if old is not None:
            self._size -= old.size
        tail = _tail_of(found)
        self._tails[reply_id] = tail
        self._size += tail.size
        self._grow(tail, ())

    def _grow(self, tail: _Tail, entries: Sequence[Entry]) -> None:
        added = size_of(entries)
        tail.size += added
        self._size += added
        while self._size > self._tail_bytes and self._tails:
            _, dropped = self._tails.popitem(last=False)
            self._size -= dropped.size


def restart_log(database: sqlite3.Connection, reply_id: str, fence: int, attempt: int) -> None:
    """Empties the log for a new attempt; a missing one stays missing until its first fence."""
    database.execute(SQL["forget_entries"], (reply_id,))
    database.execute(SQL["restart"], (fence, attempt, reply_id))


def log_attempt(database: sqlite3.Connection, reply_id: str) -> int:
    """The attempt of the log, 0 if it is missing."""
    head = database.execute(HEAD, (reply_id,)).fetchone()
    return int(head["attempt"]) if head is not None else 0


def bury_logs(database: sqlite3.Connection, reply_ids: Sequence[str], now: float) -> None:
    """Removes logs for good: nobody, not even their live owner, can write them again."""
    for reply_id in reply_ids:
        database.execute(SQL["forget_entries"], (reply_id,))
        database.execute(SQL["bury"], {"reply_id": reply_id, "fence": BURIED, "now": now})


def _fence(reply_id: str, epoch: int, attempt: int, database: sqlite3.Connection) -> Fenced | None:
    head = database.execute(HEAD, (reply_id,)).fetchone()
    if head is None:
        attempt = attempt if epoch == 1 else attempt + 1
        database.execute(SQL["add_head"], (reply_id, epoch, attempt, 0))
        return Fenced(attempt, ())
    if epoch < head["fence"]:
        return None
    if attempt > head["attempt"]:
        restart_log(database, reply_id, epoch, attempt + 1)
        return Fenced(attempt + 1, ())
    database.execute(SQL["raise_fence"], (epoch, reply_id))
    return Fenced(head["attempt"], _entries(database, reply_id))


def _append(
    reply_id: str,
    epoch: int,
    attempt: int,
    entries: Sequence[Entry],
    database: sqlite3.Connection,
) -> Append:
    if entries and is_gapless(entries, entries[0].seq):
        head = (entries[-1].seq, reply_id, epoch, attempt, entries[0].seq - 1)
        if database.execute(GO_ON, head).rowcount == 1:
            for entry in entries:
                row = (reply_id, entry.seq, entry.kind, entry.data, entry.ids)
                database.execute(ADD_ENTRY, row)
            return Append.DONE
    found = database.execute(HEAD, (reply_id,)).fetchone()
    if found is None:
        return Append.MISSING
    if found["fence"] != epoch or found["attempt"] != attempt:
        return Append.STALE
    return going_on(_entries(database, reply_id), entries) or Append.DONE


def _reseed(
    reply_id: str,
    epoch: int,
    attempt: int,
    entries: Sequence[Entry],
    database: sqlite3.Connection,
) -> Append:
    if not is_gapless(entries, 1):
        return Append.STALE
    found = database.execute(HEAD, (reply_id,)).fetchone()
    if found is not None:
        is_ours = found["fence"] == epoch and found["attempt"] == attempt
        if not is_ours or found["last"] > len(entries):
            return Append.STALE
        _drop([reply_id], database)
    database.execute(SQL["add_head"], (reply_id, epoch, attempt, len(entries)))
    rows = [(reply_id, entry.seq, entry.kind, entry.data, entry.ids) for entry in entries]
    database.executemany(ADD_ENTRY, rows)
    return Append.DONE


def _load(reply_id: str, database: sqlite3.Connection) -> Fenced | None:
    head = database.execute(HEAD, (reply_id,)).fetchone()
    if head is None or head["buried_at"] is not None:
        return None
    return Fenced(head["attempt"], _entries(database, reply_id))


def _drop(reply_ids: Sequence[str], database: sqlite3.Connection) -> int:
    count = 0
    for reply_id in reply_ids:
        database.execute(SQL["forget_entries"], (reply_id,))
        count += database.execute(SQL["forget_head"], (reply_id,)).rowcount
    return count


def _finished_before(
    moment: float, buried_before: float, database: sqlite3.Connection
) -> list[str]:
    database.execute(SQL["unbury"], (buried_before,))
    found = database.execute(SQL["finished_before"], {"moment": moment})
    return [row["reply_id"] for row in found]


def _entries(database: sqlite3.Connection, reply_id: str) -> tuple[Entry, ...]:
    return tuple(Entry(*row) for row in database.execute(SQL["entries"], (reply_id,)))


def _tail_of(found: Fenced | None) -> _Tail:
    if found is None:
        return _Tail(_MISSING, [], _TAIL_BYTES)
    return _Tail(found.attempt, list(found.entries), _TAIL_BYTES + size_of(found.entries))
