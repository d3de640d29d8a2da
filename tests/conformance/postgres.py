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
TABLES = (
    "users",
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


async def open_with_valkey(url: str, urls: Sequence[str], clock: Clock) -> PostgresAndValkey:
    """The server's database without a row, with its logs in Valkey."""
    valkey = await ValkeyBackend.open(urls)
    database = await Database.open(url, clock, connections=8)
    await _empty(url)
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
    await connection.execute("; ".join(f"DELETE FROM {table}" for table in TABLES))
    await connection.close()
