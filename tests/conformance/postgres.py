"""Postgres for the conformance list: one real server a run, emptied before each test.

Logs are in another system: in memory, where a test can lose them, or in Valkey as in a fleet.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg

from tertulia.backends.clock import SystemClock
from tertulia.backends.memory import MemoryLog, MemoryStore
from tertulia.backends.postgres import PostgresBackend
from tertulia.backends.postgres.database import Database
from tertulia.backends.valkey import ValkeyBackend
from tertulia.drills.postgres_server import PostgresServer
from tertulia.ports import Clock, Log

# Deleting a few rows is ten times faster than truncating sixty tables with their indexes.
_TABLES = (
    "users",
    "identities",
    "sessions",
    "links",
    "api_keys",
    "prompts",
    "rollout",
    "instructions",
    "doors",
    "conversations",
    "messages",
    "shares",
    "turns",
    "open_turns",
    "tags",
    "begun",
    "settlements",
    "balances",
    "log_removals",
    "files",
    "file_parts",
    "batches",
    "batch_lines",
    "deletions",
    "departed",
    "imports",
)
_EMPTY = "; ".join(f"DELETE FROM {table}" for table in _TABLES)


class PostgresAndMemory(PostgresBackend):
    """All ports: the truth in Postgres, the logs in memory."""

    def __init__(self, database: Database, log: MemoryLog) -> None:
        super().__init__(database, log)
        self.log = log
        self.database = database


class PostgresAndValkey(PostgresBackend):
    """All ports as a fleet has them: the truth in Postgres, the logs in Valkey."""

    def __init__(self, database: Database, log: Log, valkey: ValkeyBackend) -> None:
        super().__init__(database, log)
        self.log = log
        self._valkey = valkey

    async def close(self) -> None:
        """Lets both go."""
        await super().close()
        await self._valkey.close()


class _Borrowed(Database):
    """One test's way to a database whose connections outlive it."""

    async def close(self) -> None:
        """The next test has the connections."""
        await self.give_back_resting()


class Connections:
    """Connections that tests in one event loop use one after the other; the first opens them.

    One of its own costs a test more than all that it asks: the server starts a process, which meets
    the partitions of every table for the first time.
    """

    def __init__(self) -> None:
        self._opened: Database | None = None

    async def to_empty(self, url: str, clock: Clock) -> Database:
        """The server's database without a row, at this clock; its `close` gives them back."""
        if self._opened is None:
            self._opened = await Database.open(url, None, connections=8)
        pool = self._opened._pool
        async with pool.acquire() as connection:
            await connection.execute(_EMPTY)
        return _Borrowed(pool, clock)

    async def close(self) -> None:
        """Lets them go."""
        if self._opened is not None:
            await self._opened.close()


@contextmanager
def running_server(*options: tuple[str, str]) -> Iterator[PostgresServer]:
    """A server in a folder that it can reach, whoever runs the tests."""
    folder = Path(tempfile.mkdtemp(prefix="tertulia-postgres-"))
    try:
        with PostgresServer(folder, *options) as server:
            yield server
    finally:
        shutil.rmtree(folder)


async def open_empty(url: str, clock: Clock | None, *, connections: int = 8) -> PostgresAndMemory:
    """The server's database without a row."""
    store = await open_again(url, clock, connections=connections)
    await _empty(url)
    return store


def with_memory(database: Database, clock: Clock) -> PostgresAndMemory:
    """With empty logs in memory."""
    return PostgresAndMemory(database, MemoryLog(MemoryStore(clock)))


async def with_valkey(database: Database, urls: Sequence[str]) -> PostgresAndValkey:
    """With its logs in Valkey."""
    valkey = await ValkeyBackend.open(urls)
    return PostgresAndValkey(database, valkey.log, valkey)


async def open_again(url: str, clock: Clock | None, *, connections: int = 8) -> PostgresAndMemory:
    """The server's database as it is, with empty logs."""
    log = MemoryLog(MemoryStore(clock or SystemClock()))
    return await PostgresAndMemory.open(url, log, clock=clock, connections=connections)


async def run_sql(url: str, *statements: str) -> Any:
    """Statements over a connection of their own; the first value of the last."""
    connection = await asyncpg.connect(url)
    try:
        for statement in statements[:-1]:
            await connection.execute(statement)
        return await connection.fetchval(statements[-1])
    finally:
        await connection.close()


async def _empty(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(_EMPTY)
    await connection.close()
