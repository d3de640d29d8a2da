"""The one thread that writes: it commits whatever has gathered, once, and only then answers.

An answer means durable. Every step is whole or undone, and one that fails harms no other.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, TypeVar

from tertulia.backends.sqlite.file import BUSY_MS, store_error
from tertulia.ports import StoreUnavailable

R = TypeVar("R")

Step = Callable[[sqlite3.Connection], R]

# Callers that may wait for a commit; the next one is told to come back.
WAITING: Final = 4096
# Steps of one transaction: enough to share a disk flush, few enough to answer soon.
GROUP: Final = 512
# When work waits already after a commit, more is on its way: so long is it let gather, because
# the flush and two thread switches of a commit cost more than a step. Alone nobody waits.
GATHER_S: Final = 0.003
# A reader at work keeps deleted words in the write-ahead log: so soon is it tried again.
SCRUB_AGAIN_S: Final = 0.1
# While writes come without a pause, that is done in between after so many commits: it costs as much
# as some of them, and deleted words should not wait for a quiet hour.
SCRUB_AFTER: Final = 50
# A reader's page takes less; a backup may take longer, and is waited for anew.
SCRUBBED_S: Final = 5.0


class _Asked(NamedTuple):
    step: Step[Any]
    answer: asyncio.Future[Any]
    after: Callable[[Any], None] | None


@dataclass(frozen=True, slots=True)
class _Failed:
    error: BaseException


class Writer:
    """A bounded queue in front of one connection. All callers live in one event loop."""

    def __init__(self, database: sqlite3.Connection, *, waiting: int = WAITING) -> None:
        self._database = database
        self._waiting = waiting
        self._queue: SimpleQueue[_Asked | None] = SimpleQueue()
        self._closed = False
        self._closing = threading.Event()
        self._scrub = False
        self._n_unscrubbed = 0
        self._awaiting_scrub: list[asyncio.Future[None]] = []
        self._thread = threading.Thread(target=self._run, name="sqlite-writer", daemon=True)
        self._thread.start()

    def put(self, step: Step[R], after: Callable[[R], None] | None = None) -> asyncio.Future[R]:
        """Runs `step` in the next transaction; the future is its durable answer.

        `after` is called in the event loop, once the step is committed and before anybody sees
        its answer, in the order of the commits, even if the caller has gone.
        """
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if self._queue.qsize() >= self._waiting:
            raise StoreUnavailable("too many writes are waiting: try again in a moment")
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._queue.put(_Asked(step, answer, after))
        return answer

    def scrub(self) -> None:
        """Called by a step that deleted words: the write-ahead log is emptied soon after it."""
        self._scrub = True

    async def scrubbed(self) -> bool:
        """Empties the write-ahead log of all that was committed by now; False if somebody who reads
        kept it from that for too long."""
        emptied: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def step(_: sqlite3.Connection) -> None:
            self._awaiting_scrub.append(emptied)
            self.scrub()

        await self.put(step)
        try:
            async with asyncio.timeout(SCRUBBED_S):
                await emptied
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Takes nothing more, finishes what waits, and ends the thread."""
        if self._closed:
            return
        self._closed = True
        self._closing.set()
        self._queue.put(None)
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join)
        self._database.close()

    def _run(self) -> None:
        try:
            open_ = True
            while open_:
                group, open_ = self._gather()
                if group:
                    _hand_back(group, self._commit([asked.step for asked in group]))
                if self._scrub and (self._queue.empty() or self._n_unscrubbed >= SCRUB_AFTER):
                    self._empty_wal()
                elif not self._queue.empty():
                    self._n_unscrubbed += self._scrub
                    self._closing.wait(GATHER_S)
        finally:
            # Also if this thread fails in a way nobody thought of: no caller waits for ever.
            self._closed = True
            self._refuse_the_rest()

    def _gather(self) -> tuple[list[_Asked], bool]:
        """Waits for the first and takes all that came with it; False once the end is asked for.

        Nothing comes while deleted words wait to leave the write-ahead log: then it is their turn.
        """
        group: list[_Asked] = []
        try:
            asked = self._queue.get(timeout=SCRUB_AGAIN_S if self._scrub else None)
        except Empty:
            return group, True
        while asked is not None:
            group.append(asked)
            if len(group) == GROUP:
                return group, True
            try:
                asked = self._queue.get_nowait()
            except Empty:
                return group, True
        return group, False

    def _commit(self, steps: Sequence[Step[Any]]) -> list[Any]:
        database = self._database
        try:
            database.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            return [_Failed(store_error(error))] * len(steps)
        try:
            answers = [step(database) for step in steps]
            database.execute("COMMIT")
            return answers
        except Exception as error:  # noqa: BLE001 - it goes to the caller, who acts on it
            failed = _Failed(store_error(error))
            if database.in_transaction:  # some errors end it at once
                database.execute("ROLLBACK")
        if len(steps) == 1:
            return [failed]
        # Nothing of the group is kept. Each alone: only those that can't be done fail. To be able
        # to take each step back by itself would cost all of them what this costs hardly anybody.
        return [answer for step in steps for answer in self._commit([step])]

    def _refuse_the_rest(self) -> None:
        ended = _Failed(StoreUnavailable("the store is closed"))
        with suppress(Empty):
            while True:
                asked = self._queue.get_nowait()
                if asked is not None:
                    _hand_back([asked], [ended])

    def _empty_wal(self) -> None:
        """Deleted words leave the write-ahead log too; while a reader is at work, soon after."""
        database = self._database
        database.execute("PRAGMA busy_timeout = 0")
        try:
            busy = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            self._scrub = bool(busy)
            if not busy:
                self._tell_scrubbed()
        except sqlite3.OperationalError:
            self._scrub = True
        finally:
            self._n_unscrubbed = 0
            database.execute(f"PRAGMA busy_timeout = {BUSY_MS}")

    def _tell_scrubbed(self) -> None:
        told, self._awaiting_scrub = self._awaiting_scrub, []
        with suppress(RuntimeError):  # the loop has ended: nobody is left to hear of it
            for emptied in told:
                emptied.get_loop().call_soon_threadsafe(_settle, emptied)


def _hand_back(group: Sequence[_Asked], answers: Sequence[Any]) -> None:
    """One call into the event loop for the whole group."""
    with suppress(RuntimeError):  # the loop has ended: all is stored, nobody is left to hear of it
        group[0].answer.get_loop().call_soon_threadsafe(_answer, group, answers)


def _settle(emptied: asyncio.Future[None]) -> None:
    if not emptied.done():
        emptied.set_result(None)


def _answer(group: Sequence[_Asked], answers: Sequence[Any]) -> None:
    for asked, answer in zip(group, answers, strict=True):
        if isinstance(answer, _Failed):
            if not asked.answer.done():
                asked.answer.set_exception(answer.error)
            continue
        if asked.after is not None:
            asked.after(answer)
        if not asked.answer.done():
            asked.answer.set_result(answer)
