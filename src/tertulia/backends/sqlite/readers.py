"""Read-only connections: one here for what is found by its key, and a few in threads of their own,
so that a long query delays neither a write nor the event loop."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from tertulia.backends.sqlite.file import open_reader, store_error
from tertulia.ports import StoreUnavailable

R = TypeVar("R")

THREADS: Final = 2
# Queries that may wait for a thread; the next one is told to come back.
WAITING: Final = 1024
# A look may take so many times so many instructions of SQLite's machine, about a millisecond: a few
# rows by their key are hundreds.
LOOK_STEPS: Final = 1_000
LOOK_LENGTH: Final = 20


class Readers:
    """Runs queries, each on one consistent state of the database."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="sqlite-reader")
        self._own = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._waiting = 0
        self._here: sqlite3.Connection | None = None
        self._looked = 0

    async def look(self, query: Callable[[sqlite3.Connection], R]) -> R:
        """The answer of `query`, which finds a few rows by their key.

        It is asked here: a thread would cost ten times as much as the answer. Should it take long
        after all, or have to wait for a lock, a thread is asked.
        """
        try:
            return _in_transaction(self._at_hand(), query)
        except sqlite3.OperationalError:
            return await self.ask(query)

    async def row(self, statement: str, values: Mapping[str, object]) -> sqlite3.Row | None:
        """The one row that `statement` finds by its key, looked up as `look` does. One statement is
        a transaction by itself: to begin and end it would take as long again."""
        try:
            return _row(self._at_hand(), statement, values)
        except sqlite3.OperationalError:
            return await self.ask(lambda database: _row(database, statement, values))

    async def ask(self, query: Callable[[sqlite3.Connection], R]) -> R:
        """The answer of `query`, which must only read."""
        if self._waiting >= WAITING:
            raise StoreUnavailable("too many queries are waiting: try again in a moment")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self._run, query)
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """Ends the threads and their connections."""
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)
        for database in self._opened:
            database.close()
        self._opened.clear()

    def _at_hand(self) -> sqlite3.Connection:
        if self._here is None:
            self._here = self._open()
            self._here.execute("PRAGMA busy_timeout = 0")
            self._here.set_progress_handler(self._is_long, LOOK_STEPS)
        self._looked = 0
        return self._here

    def _is_long(self) -> bool:
        self._looked += 1
        return self._looked > LOOK_LENGTH

    def _open(self) -> sqlite3.Connection:
        database = open_reader(self._path)
        self._opened.append(database)
        return database

    def _run(self, query: Callable[[sqlite3.Connection], R]) -> R:
        try:
            database: sqlite3.Connection | None = getattr(self._own, "database", None)
            if database is None:
                database = self._own.database = self._open()
            return _in_transaction(database, query)
        except sqlite3.Error as error:
            raise store_error(error) from error


def _row(
    database: sqlite3.Connection, statement: str, values: Mapping[str, object]
) -> sqlite3.Row | None:
    row: sqlite3.Row | None = database.execute(statement, values).fetchone()
    return row


def _in_transaction(database: sqlite3.Connection, query: Callable[[sqlite3.Connection], R]) -> R:
    database.execute("BEGIN")
    try:
        return query(database)
    finally:
        if database.in_transaction:
            database.execute("COMMIT")
