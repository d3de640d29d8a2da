"""What Postgres does about rows that were deleted: as much as a server does while others use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from tertulia.backends.postgres import database
from tertulia.drills.postgres_server import PostgresServer
from tertulia.ports import StoreUnavailable
from tests.conformance.postgres import PostgresAndMemory, open_empty, run_sql
from tests.conformance.world import answered, conversation, message

pytestmark = pytest.mark.anyio

LATER = 1e12  # after anything that a test deletes

_PAGES = """
SELECT CAST(sum(pg_relation_size(oid)) AS BIGINT) FROM pg_class
WHERE relname ~ '^messages_[0-9]+$'
"""


@pytest.fixture
async def store(
    anyio_backend: str, postgres_server: PostgresServer
) -> AsyncIterator[PostgresAndMemory]:
    opened = await open_empty(postgres_server.url, None)
    yield opened
    await opened.close()


async def test_dead_rows_leave_their_tables(
    store: PostgresAndMemory, postgres_server: PostgresServer
) -> None:
    await run_sql(postgres_server.url, "VACUUM messages", "SELECT 1")
    before = await run_sql(postgres_server.url, _PAGES)
    await conversation(store)
    await answered(store, message(1), text="Zugunruhe " * 2_000)
    there = await run_sql(postgres_server.url, _PAGES)
    await store.conversations.delete("ana", "c_1")
    assert await run_sql(postgres_server.url, _PAGES) >= there > before
    assert await store.erasure.scrub("ana", 0.0) == "vacuumed"
    assert await run_sql(postgres_server.url, _PAGES) == before


async def test_a_vacuum_is_not_made_for_each_deletion_anew(store: PostgresAndMemory) -> None:
    assert await store.erasure.scrub("ana", 0.0) == "vacuumed"
    assert await store.erasure.scrub("ana", 1.0) == "vacuumed"  # it was made after that
    assert await store.erasure.scrub("ana", LATER) is None  # and not yet again


async def test_those_who_ask_at_once_share_one_vacuum(
    store: PostgresAndMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    execute = asyncpg.Connection.execute

    async def counted(self: asyncpg.Connection, query: str, *args: object, **more: object) -> str:
        ran.extend(["vacuum"] * query.startswith("VACUUM"))
        done: str = await execute(self, query, *args, **more)
        return done

    monkeypatch.setattr(asyncpg.Connection, "execute", counted)
    answers = await asyncio.gather(*(store.erasure.scrub("ana", 0.0) for _ in range(5)))
    assert (set(answers), ran) == ({"vacuumed"}, ["vacuum"])


async def test_a_vacuum_that_takes_too_long_leaves_a_connection_as_it_was(
    store: PostgresAndMemory, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "VACUUM_S", 0.2)
    holding = await asyncpg.connect(postgres_server.url)
    async with holding.transaction():
        await holding.execute("LOCK TABLE messages_0 IN SHARE MODE")
        with pytest.raises(StoreUnavailable):
            await store.database.vacuum(("messages_0",), since=0.0)
    await holding.close()
    monkeypatch.undo()
    await conversation(store)
    assert await store.database.vacuum(("messages_0",), since=0.0)
