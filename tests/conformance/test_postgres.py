"""What only a shared database has to be asked: its settings, its schema, and many who use it."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from traceback import format_exception
from typing import Any
from unittest.mock import patch

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from tertulia.backends.clock import SystemClock
from tertulia.backends.memory import MemoryLog, MemoryStore
from tertulia.backends.migrations import NewerSchema
from tertulia.backends.migrations import postgres as migrations
from tertulia.backends.postgres import PostgresBackend, database
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.postgres.text import read_text, write_text
from tertulia.core.types import Admitted, Append, Repeated, Status
from tertulia.drills.postgres_server import PostgresServer
from tertulia.ports import StoreUnavailable
from tertulia.terminal import stores
from tests.conformance.postgres import (
    Connections,
    PostgresAndMemory,
    open_again,
    open_empty,
    run_sql,
    running_server,
    with_memory,
)
from tests.conformance.world import (
    PLENTY,
    ManualClock,
    admitted,
    answered,
    claimed,
    completed,
    conversation,
    entries,
    message,
    stateless,
    tokens_a_day,
    used_and_held,
)

pytestmark = pytest.mark.anyio

# Enough that the planner has to think: twenty owners with a hundred finished turns each, and some
# thousand turns that are running.
A_HISTORY = (
    """
    INSERT INTO turns
    SELECT 'u_' || n % 20, 'm_' || n, 'k_' || n, '', 'message', 'free', 1, 'auto', NULL, 1, 1, '',
      1, n, 'c_' || n % 40, 'm_u' || n, '[]', '{}', NULL, NULL, NULL, NULL, 1, 400, n, 'stop', '',
      1, 1, 1, 1, NULL, NULL, 1, 'completed', 1, n, NULL, NULL
    FROM generate_series(1, 2000) AS n
    """,
    """
    INSERT INTO messages (
      owner, conversation_id, seq, id, parent_id, role, content, folded, signature, tokens,
      tokenizer, status, created_at
    )
    SELECT 'u_' || n % 20, 'c_' || n % 40, n, 'm_' || n, 'm_' || n - 40, 'assistant', 'x', 'x',
      CAST(0 AS BIT(1024)), 1, '', 'completed', n
    FROM generate_series(1, 2000) AS n
    """,
    """
    INSERT INTO open_turns
    SELECT 'u_' || n % 500, 'm_' || n, 'c_' || n, 'm_u' || n, NULL, 'free', 1, n, 1, NULL, NULL,
      n, 300, 200, '[]', 30, 'running', 1, 1e12, n, NULL
    FROM generate_series(3001, 6000) AS n
    """,
    "ANALYZE turns, messages, open_turns",
    "SELECT 1",
)
# An owner's waiting turn, and what is needed to end it.
FOR_PLANS = {
    "owner": "'ana'",
    "reply_id": "'m_r1'",
    "key": "'key-1'",
    "epoch": "0",
    "from": "'{queued}'",
    **dict.fromkeys(("prompt_tokens", "last_event_id", "charged"), "1"),
    **dict.fromkeys(("input_tokens", "cached_tokens", "output_tokens", "lease_s"), "1"),
    **dict.fromkeys(("attempt", "tokens"), "1"),
    **dict.fromkeys(("text", "folded", "tokenizer", "model", "reason"), "''"),
    "status": "'failed'",
    "notices": "'{}'",
    "charges": "'{}'",
    "budgets": "'[]'",
    "plan": "'free'",
    "ledger_ms": "1",
}
NOUNS = (
    "turns",
    "queue",
    "conversations",
    "messages",
    "branches",
    "accounts",
    "sessions",
    "api_keys",
    "ledger",
    "files",
    "batches",
    "deletions",
    "moving",
    "tasks",
    "summaries",
)
STUCK = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
PROMPT_S = 20.0
CONNECTIONS = 8  # of a store that is opened empty


@pytest.fixture
async def store(
    postgres_server: PostgresServer, clock: ManualClock, connections: Connections
) -> AsyncIterator[PostgresAndMemory]:
    opened = with_memory(await connections.to_empty(postgres_server.url, clock), clock)
    yield opened
    await opened.close()


@pytest.fixture
async def fresh_url(postgres_server: PostgresServer, anyio_backend: str) -> AsyncIterator[str]:
    """A database without tables."""
    await run_sql(postgres_server.url, "CREATE DATABASE fresh TEMPLATE template0")
    yield postgres_server.url_of("fresh")
    await run_sql(postgres_server.url, "DROP DATABASE fresh WITH (FORCE)")


def some_log() -> MemoryLog:
    return MemoryLog(MemoryStore(SystemClock()))


async def opened(url: str) -> PostgresBackend:
    return await PostgresBackend.open(url, some_log(), connections=2)


# What the database has to promise.


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("ALTER DATABASE fresh SET synchronous_commit = off", "synchronous_commit = off"),
        ("ALTER DATABASE fresh SET synchronous_commit = local", "synchronous_commit = local"),
    ],
)
async def test_a_database_that_may_forget_commits_is_refused(
    fresh_url: str, change: str, word: str
) -> None:
    await run_sql(fresh_url, change)
    with pytest.raises(StoreUnavailable, match=word):
        await opened(fresh_url)
    assert (await stores._postgres(SecretStr(fresh_url))).state == "fail", "the doctor says so"
    assert await run_sql(fresh_url, "SELECT to_regclass('turns')") is None


async def test_a_database_of_another_encoding_is_refused(
    postgres_server: PostgresServer, anyio_backend: str
) -> None:
    url = postgres_server.url
    await run_sql(url, "CREATE DATABASE plain ENCODING 'SQL_ASCII' TEMPLATE template0")
    with pytest.raises(StoreUnavailable, match="server_encoding = SQL_ASCII"):
        await opened(postgres_server.url_of("plain"))
    await run_sql(url, "DROP DATABASE plain")


async def test_a_server_without_fsync_is_refused(anyio_backend: str) -> None:
    with (
        running_server(("fsync", "off")) as server,
        pytest.raises(StoreUnavailable, match="fsync = off"),
    ):
        await opened(server.url)


async def test_a_database_that_is_not_there_is_unavailable(
    postgres_server: PostgresServer, anyio_backend: str
) -> None:
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await opened(postgres_server.url_of("nowhere"))
    with pytest.raises(StoreUnavailable):
        await opened("postgresql://tertulia@127.0.0.1:1/postgres")


# Its schema.


async def test_ten_that_start_at_once_migrate_once(
    fresh_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts: list[str | None] = []
    script = migrations._script

    def counted(found: str | None) -> str:
        scripts.append(found)
        return script(found)

    monkeypatch.setattr(migrations, "_script", counted)
    stores = await asyncio.gather(*(opened(fresh_url) for _ in range(10)))
    for n, one in enumerate(stores):
        await one.conversations.create("ana", f"c_{n}", key=None, prompt_version="v1")
        await one.close()
    assert scripts == [None]
    versions = await run_sql(fresh_url, "SELECT array_agg(version_num) FROM alembic_version")
    assert tuple(versions) == (migrations.REVISIONS[-1],)


async def test_a_database_of_a_newer_version_is_refused_and_left_alone(fresh_url: str) -> None:
    await (await opened(fresh_url)).close()
    await run_sql(fresh_url, "UPDATE alembic_version SET version_num = '9999'", "SELECT 1")
    with pytest.raises(NewerSchema, match="9999"):
        await opened(fresh_url)
    assert await run_sql(fresh_url, "SELECT version_num FROM alembic_version") == "9999"


async def test_a_migration_is_applied_whole_or_not_at_all(fresh_url: str) -> None:
    in_the_way = "CREATE TABLE imports_7 (of_somebody INTEGER)"  # the last one of the schema
    await run_sql(fresh_url, in_the_way)
    with pytest.raises(asyncpg.DuplicateTableError):
        await opened(fresh_url)
    assert await run_sql(fresh_url, "SELECT to_regclass('users')") is None
    assert await run_sql(fresh_url, "SELECT to_regclass('alembic_version')") is None
    await run_sql(fresh_url, "DROP TABLE imports_7")
    await (await opened(fresh_url)).close()


async def test_every_statement_is_valid_sql(
    store: PostgresAndMemory, postgres_server: PostgresServer
) -> None:
    connection = await asyncpg.connect(postgres_server.url)
    for noun in NOUNS:
        for statement in postgres_statements(noun).values():
            await connection.prepare(statement.text)
    await connection.close()


async def test_what_belongs_to_an_owner_has_keys_that_begin_with_him(
    store: PostgresAndMemory, postgres_server: PostgresServer
) -> None:
    connection = await asyncpg.connect(postgres_server.url)
    found = await connection.fetch(
        """
        SELECT c.relname AS table, i.relname AS index, a.attname AS first, x.indisunique AS is_key
        FROM pg_index x
          JOIN pg_class c ON c.oid = x.indrelid
          JOIN pg_class i ON i.oid = x.indexrelid
          JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = x.indkey[0]
        WHERE c.relkind = 'p'
        """
    )
    await connection.close()
    assert len({row["table"] for row in found}) == 19
    others = {row["index"] for row in found if row["first"] != "owner"}
    # The queue is everybody's, and so are its time and the chores.
    assert others == {
        "open_turns_waiting",
        "open_turns_held",
        "tags_order",
        "tasks_due",
        "turns_ended",
        "files_end",
        "files_unfinished",
        "batches_waiting",
        "batches_over",
        "deletions_due",
        "deletions_over",
        "deletions_list",
        "imports_waiting",
        "conversations_prompt",
    }
    assert not any(row["is_key"] for row in found if row["first"] != "owner")


# Statements of the turn path, and an index that each must use.
INDEXES = (
    ("queue", "claim", "_lane_rank_created_at_reply_id_idx"),
    ("queue", "claim", "_lease_until_idx"),
    ("queue", "lease", "_pkey"),
    ("turns", "door", "_owner_key_key"),
    ("turns", "finish", "_pkey"),
    ("conversations", "page", "_owner_archived_pinned_updated_at_id_idx"),
    ("conversations", "last_looked", "_owner_archived_pinned_updated_at_id_idx"),
    ("conversations", "search", "_owner_archived_pinned_updated_at_id_idx"),
    ("messages", "page", "_pkey"),
    ("branches", "path", "_owner_id_key"),
    ("branches", "below", "_owner_conversation_id_coalesce_seq_idx"),
    ("branches", "delete", "_pkey"),
)
# Statements about one owner's turn, which is there.
OF_AN_OWNER = ("by_reply", "door", "note", "finish", "seize")
Plans = dict[tuple[str, str], str]


@pytest.fixture(scope="module")
async def history(postgres_server: PostgresServer, connections: Connections) -> tuple[Plans, Plans]:
    """How the server would do the first, and did the second. A history takes long to write."""
    clock = ManualClock()
    store = with_memory(await connections.to_empty(postgres_server.url, clock), clock)
    await run_sql(postgres_server.url, *A_HISTORY)
    planner = await asyncpg.connect(postgres_server.url, server_settings=database._SETTINGS)
    try:
        would = {(noun, name): await _plan(planner, noun, name) for noun, name, _ in INDEXES}
        await admitted(store, stateless(1))
        did = {("turns", n): await _plan(planner, "turns", n, run=True) for n in OF_AN_OWNER}
    finally:
        await planner.close()
        await store.close()
    return would, did


@pytest.mark.parametrize(("noun", "name", "index"), INDEXES)
def test_the_statements_of_the_turn_path_use_their_index(
    history: tuple[Plans, Plans], noun: str, name: str, index: str
) -> None:
    plan = history[0][noun, name]
    assert index in plan, plan
    assert "Seq Scan" not in plan, plan


@pytest.mark.parametrize("name", OF_AN_OWNER)
def test_an_owners_statement_looks_into_one_partition(
    history: tuple[Plans, Plans], name: str
) -> None:
    plan = history[1]["turns", name]
    assert "Scan" in plan, plan
    for table in ("turns", "open_turns", "messages"):
        assert len(set(re.findall(rf"Scan .*on ({table}_\d)", plan))) <= 1, plan


# Many who use it.


async def test_a_thousand_racing_duplicates_at_three_gateways_begin_one_turn(
    postgres_server: PostgresServer, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "ANSWER_S", 60.0)  # however busy the machine is
    url = postgres_server.url
    async with AsyncExitStack() as leaving:
        stores = [await open_empty(url, None)]
        stores += [await open_again(url, None) for _ in range(2)]
        for store in stores:
            leaving.push_async_callback(store.close)
        await conversation(stores[0])
        answers = await asyncio.gather(
            *(stores[n % 3].turns.admit(message(1, reply_id=f"m_{n}"), PLENTY) for n in range(1000))
        )
        kinds = Counter(type(answer) for answer in answers)
        assert kinds == {Admitted: 1, Repeated: 999}
        turns = [answer.turn for answer in answers if isinstance(answer, Admitted | Repeated)]
        assert len({turn.reply_id for turn in turns}) == 1
        page = await stores[1].messages.page("ana", "c_1", before=None, limit=10)
        assert page is not None
        assert len(page.items) == 2


async def test_limits_hold_at_many_gateways(
    postgres_server: PostgresServer, anyio_backend: str
) -> None:
    url = postgres_server.url
    async with AsyncExitStack() as leaving:
        stores = [await open_empty(url, None), await open_again(url, None)]
        for store in stores:
            leaving.push_async_callback(store.close)
        limits = tokens_a_day(1500)
        answers = await asyncio.gather(
            *(stores[n % 2].turns.admit(stateless(n), limits) for n in range(40))
        )
        assert [type(answer) for answer in answers].count(Admitted) == 5
        assert (await used_and_held(stores[0], "ana"))[:2] == (0, 1500)


async def test_an_owner_who_is_stuck_keeps_nobody_else_waiting(
    postgres_server: PostgresServer, anyio_backend: str
) -> None:
    store = await open_empty(postgres_server.url, None, connections=2)
    await admitted(store, stateless("first"))
    other = await asyncpg.connect(postgres_server.url)
    await other.execute("BEGIN; SELECT passes FROM doors WHERE owner = 'ana' FOR UPDATE")
    stuck = [asyncio.create_task(store.turns.admit(stateless(n), PLENTY)) for n in range(20)]
    async with asyncio.timeout(database.STATEMENT_S / 2):  # before the stuck ones are given up
        while await run_sql(postgres_server.url, STUCK) == 0:
            pass
        for n in range(10):
            await admitted(store, stateless(n, owner="ben"))
    assert not any(task.done() for task in stuck)
    await other.execute("COMMIT")
    await other.close()
    assert {type(answer) for answer in await asyncio.gather(*stuck)} == {Admitted}
    await store.close()


async def test_an_owner_who_asks_without_end_takes_nobody_elses_place(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch, anyio_backend: str
) -> None:
    monkeypatch.setattr(database, "WAITING", 20)
    monkeypatch.setattr(database, "IN_LINE", 20)
    store = await open_empty(postgres_server.url, None, connections=2)
    await conversation(store)
    other = await asyncpg.connect(postgres_server.url)
    await other.execute(
        "INSERT INTO doors VALUES ('ana', 1, 0); BEGIN; SELECT 1 FROM doors FOR UPDATE"
    )
    asking = [asyncio.create_task(store.turns.admit(stateless(n), PLENTY)) for n in range(30)]
    refused = asyncio.gather(*asking[21:], return_exceptions=True)
    assert {type(answer) for answer in await refused} == {StoreUnavailable}
    await admitted(store, stateless("first", owner="ben"))
    await other.execute("COMMIT")
    await other.close()
    assert {type(answer) for answer in await asyncio.gather(*asking[:21])} == {Admitted}
    await store.close()


async def test_an_owner_who_searches_keeps_nobody_else_waiting(
    postgres_server: PostgresServer, anyio_backend: str
) -> None:
    store = await open_empty(postgres_server.url, None, connections=2)

    async def listed(owner: str, query: str) -> None:
        await store.conversations.list(owner, cursor=None, limit=1, query=query, archived=False)

    await asyncio.gather(*(listed("ben", "") for _ in range(4)))  # both connections are there
    other = await asyncpg.connect(postgres_server.url)
    await other.execute("BEGIN; LOCK TABLE messages")  # in which only a search looks
    searching = [asyncio.create_task(listed("ana", "word")) for _ in range(8)]
    async with asyncio.timeout(database.STATEMENT_S / 2):  # before they are given up
        while await run_sql(postgres_server.url, STUCK) == 0:
            pass
        for _ in range(10):
            await listed("ben", "")
    assert not any(task.done() for task in searching)
    await other.execute("COMMIT")
    await other.close()
    await asyncio.gather(*searching)
    await store.close()


async def test_what_the_database_cannot_take_is_not_repeated(store: PostgresAndMemory) -> None:
    """Errors are logged, and what a user wrote is not."""
    written = "\N{BIRD} \ud800"
    with pytest.raises(ValueError) as caught:
        await store.messages.rate("ana", "m_1", "up", written)
    assert written[0] not in "".join(format_exception(caught.value))


async def test_callers_beyond_the_bound_are_told_to_come_back(
    store: PostgresAndMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "WAITING", 10)
    answers = await asyncio.gather(
        *(store.accounts.count() for _ in range(30)), return_exceptions=True
    )
    kinds = Counter(type(answer) for answer in answers)
    assert kinds.keys() == {int, StoreUnavailable}
    assert 10 <= kinds[int] <= 10 + CONNECTIONS
    assert await store.accounts.count() == 0


async def test_a_session_that_the_server_ended_is_not_used_again(
    postgres_server: PostgresServer, anyio_backend: str, clock: ManualClock
) -> None:
    """Its last word comes beside an answer: the driver then refuses to ask anything more."""
    backend = await open_empty(postgres_server.url, clock)
    ended = asyncpg.InternalClientError("cannot switch to state 12; another operation (2)")
    with (
        patch.object(asyncpg.Connection, "fetchrow", side_effect=ended),
        patch.object(asyncpg.Connection, "terminate", autospec=True) as terminate,
        pytest.raises(StoreUnavailable),
    ):
        await backend.accounts.find("u_1")
    terminate.assert_called_once()
    assert await backend.accounts.find("u_1") is None
    await backend.close()


async def test_a_session_that_ended_while_it_rested_is_not_used_again(
    postgres_server: PostgresServer, anyio_backend: str, clock: ManualClock
) -> None:
    backend = await open_empty(postgres_server.url, clock)
    assert await backend.accounts.find("u_1") is None
    (resting,) = backend.database._resting
    hung_up = asyncio.Event()
    resting._con.add_termination_listener(lambda _: hung_up.set())
    pid = resting.get_server_pid()
    await run_sql(postgres_server.url, f"SELECT pg_terminate_backend({pid})")
    async with asyncio.timeout(PROMPT_S):
        await hung_up.wait()
    assert await backend.accounts.find("u_1") is None
    await backend.close()


async def test_times_are_the_databases(postgres_server: PostgresServer, anyio_backend: str) -> None:
    store = await open_empty(postgres_server.url, None)
    turn = await admitted(store, stateless(1))
    held = await claimed(store)
    now = await run_sql(
        postgres_server.url, "SELECT CAST(extract(epoch FROM now()) AS DOUBLE PRECISION)"
    )
    assert held.lease_until is not None
    assert 0 <= now - turn.created_at < PROMPT_S
    assert 0 <= held.lease_until - 2.0 - turn.created_at < PROMPT_S
    await store.close()


# Logs, which are kept elsewhere.


class AwayLog(MemoryLog):
    """A log whose system can't be reached while `is_away`."""

    is_away = False

    async def bury(self, reply_ids: Sequence[str]) -> None:
        self._demand()
        await super().bury(reply_ids)

    async def drop(
        self, *, older_than_s: float | None = None, reply_ids: Sequence[str] = ()
    ) -> int:
        self._demand()
        return await super().drop(older_than_s=older_than_s, reply_ids=reply_ids)

    def _demand(self) -> None:
        if self.is_away:
            raise StoreUnavailable("away")


@pytest.fixture
def away() -> AwayLog:
    return AwayLog(MemoryStore(SystemClock()))


async def test_logs_that_were_away_when_they_were_deleted_are_buried_later(
    store: PostgresAndMemory, postgres_server: PostgresServer, clock: ManualClock, away: AwayLog
) -> None:
    fleet = await PostgresAndMemory.open(postgres_server.url, away, clock=clock)
    await conversation(fleet)
    await answered(fleet, message(1))
    await away.fence("m_r1", 1, 1)
    away.is_away = True
    assert await fleet.conversations.delete("ana", "c_1") == ()
    assert await fleet.turns.find("ana", "m_r1") is None
    assert await fleet.conversations.bury_deleted() == 0  # whoever deleted may be at it
    clock.pass_(60)
    with pytest.raises(StoreUnavailable):
        await fleet.conversations.bury_deleted()
    away.is_away = False
    assert await fleet.conversations.bury_deleted() == 1
    assert await away.append("m_r1", 1, 1, entries(1, 1)) is Append.STALE
    assert await fleet.conversations.bury_deleted() == 0
    await fleet.close()


async def test_a_failed_turn_is_not_run_again_beside_a_log_that_is_away(
    store: PostgresAndMemory, postgres_server: PostgresServer, clock: ManualClock, away: AwayLog
) -> None:
    fleet = await PostgresAndMemory.open(postgres_server.url, away, clock=clock)
    await admitted(fleet, stateless(1))
    held = await claimed(fleet)
    failed = completed(status=Status.FAILED, finish=None)
    assert await fleet.turns.finish(held.held, failed)
    before = await fleet.turns.find("ana", "m_r1")
    away.is_away = True
    with pytest.raises(StoreUnavailable):
        await fleet.turns.admit(stateless(1), PLENTY)
    assert await fleet.turns.find("ana", "m_r1") == before
    away.is_away = False
    await admitted(fleet, stateless(1))
    await fleet.close()


@given(st.text(alphabet=st.sampled_from("a\x00\x1as0é🙂"), max_size=20) | st.text())
def test_every_text_can_be_kept(text: str) -> None:
    raw = write_text(text)
    assert b"\x00" not in raw
    assert read_text(raw) == text


async def _plan(planner: Any, noun: str, name: str, *, run: bool = False) -> str:
    """How the server would do it for anybody (or did, for `ana` and `m_r1`)."""
    statement = postgres_statements(noun)[name]
    kinds = [kind.name for kind in (await planner.prepare(statement.text)).get_parameters()]
    await planner.execute(f"PREPARE it ({', '.join(kinds)}) AS {statement.text}")
    values = ", ".join(FOR_PLANS.get(name, "NULL") for name in statement.names)
    how = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF)" if run else "EXPLAIN (COSTS OFF)"
    await planner.execute("BEGIN")
    rows = await planner.fetch(f"{how} EXECUTE it ({values})")
    await planner.execute("ROLLBACK; DEALLOCATE it")
    return "\n".join(row[0] for row in rows)
