"""A few threads with read-only connections, so that a long query never delays a write."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from tertulia.backends.sqlite.file import open_reader, store_error
from tertulia.ports import StoreUnavailable

R = TypeVar("R")

THREADS: Final = 2
# Queries that may wait for a thread; the next one is told to come back.
WAITING: Final = 1024


class Readers:
    """Runs queries, each on one consistent state of the database."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="sqlite-reader")
        self._own = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._waiting = 0

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

    def _run(self, query: Callable[[sqlite3.Connection], R]) -> R:
        try:
            database: sqlite3.Connection | None = getattr(self._own, "database", None)
            if database is None:
                database = self._own.database = open_reader(self._path)
                self._opened.append(database)
            database.execute("BEGIN")
            try:
                return query(database)
            finally:
                database.execute("COMMIT")
        except sqlite3.Error as error:
            raise store_error(error) from error
