"""What only a file can do wrong: full, locked, shared, newer, reopened; and the writer's bounds."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sqlite3
import stat
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tertulia.backends import sql
from tertulia.backends.migrations import NewerSchema
from tertulia.backends.migrations.sqlite import migrate, revision_of
from tertulia.backends.sql import statements
from tertulia.backends.sqlite import SqliteBackend, conversations, file, writer
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.types import Append, Entry, Fenced, PromptMessage, Status
from tertulia.ports import StoreFull, StoreUnavailable
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
)

pytestmark = pytest.mark.anyio

COUNTING = """
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)
    SELECT count(*) FROM n
"""


@pytest.fixture
def path(tmp_path: Path, empty_file: Path) -> Path:
    copy = tmp_path / "tertulia.db"
    shutil.copyfile(empty_file, copy)
    return copy


@pytest.fixture
async def store(path: Path, clock: ManualClock, anyio_backend: str) -> AsyncIterator[SqliteBackend]:
    opened = SqliteBackend(path, clock)
    yield opened
    await opened.close()


async def test_everything_is_there_after_reopening(path: Path, clock: ManualClock) -> None:
    store = SqliteBackend(path, clock)
    await conversation(store)
    ended = await answered(store, message(1))
    await admitted(store, message(2, parent_id="m_r1"))
    held = await claimed(store)
    await store.log.fence("m_r2", held.epoch, 1)
    await store.log.append("m_r2", held.epoch, 1, entries(1, 5))
    await store.close()
    store = SqliteBackend(path, clock)
    await store.queue.restarted()
    assert await store.turns.find("ana", "m_r1") == ended
    view = await store.log.read("m_r2", 3)
    assert view is not None
    assert (view.attempt, view.last, list(view.entries)) == (1, 5, list(entries(4, 5)))
    again = await claimed(store)
    assert await store.log.fence("m_r2", again.epoch, 1) == Fenced(1, entries(1, 5))
    assert await store.log.append("m_r2", held.epoch, 1, entries(6, 6)) is Append.STALE
    await store.close()


async def test_a_second_server_on_the_file_is_refused_and_told_who_has_it(
    store: SqliteBackend, path: Path, clock: ManualClock
) -> None:
    with pytest.raises(
        StoreUnavailable, match=f"tertulia.db is in use by the process {os.getpid()}"
    ):
        SqliteBackend(path, clock)
    assert await store.accounts.count() == 0


async def test_a_closed_file_can_be_opened_again(path: Path, clock: ManualClock) -> None:
    for _ in range(2):
        store = SqliteBackend(path, clock)
        await store.close()
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.queue.claim(lease_s=2)


async def test_a_file_of_a_newer_version_is_refused_and_left_alone(
    path: Path, clock: ManualClock
) -> None:
    database = sqlite3.connect(path)
    database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.commit()
    database.close()
    for _ in range(2):  # the lock is given back: the second time says the same
        with pytest.raises(NewerSchema, match="9999"):
            SqliteBackend(path, clock)
    assert revision_of(path) == "9999"


async def test_a_new_file_is_migrated_and_private(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "new folder %" / "tertulia.db"
    store = SqliteBackend(path, clock)
    assert await store.accounts.count() == 0
    modes = {stat.S_IMODE(one.stat().st_mode) for one in path.parent.iterdir()}
    await store.close()
    assert modes == {0o600}


def test_a_migration_is_applied_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "half.db"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE log_entries (in_the_way)")  # the last table of the first schema
    with pytest.raises(Exception, match="log_entries already exists"):
        migrate(path)
    names = [row[0] for row in database.execute("SELECT name FROM sqlite_master")]
    assert names == ["log_entries"]
    database.execute("DROP TABLE log_entries")
    database.close()
    migrate(path)
    assert revision_of(path) is not None


def test_what_is_no_database_is_refused_with_its_name(path: Path, clock: ManualClock) -> None:
    path.write_bytes(b"Dear diary, " * 1000)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=r"tertulia\.db can't be opened as a database"):
            SqliteBackend(path, clock)


def test_a_file_that_is_up_to_date_needs_no_migration_library(path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from tertulia.backends.migrations.sqlite import migrate\n"
        f"migrate(pathlib.Path({str(path)!r}))\n"
        "sys.exit('alembic' in sys.modules or 'sqlalchemy' in sys.modules)\n"
    )
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0


async def test_a_database_that_can_not_promise_durability_is_refused(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "_FULL_SYNC", 3)  # as if the setting had not taken
    with pytest.raises(StoreUnavailable, match="local disk"):
        SqliteBackend(path, clock)


async def test_a_full_disk_changes_nothing_and_keeps_what_was_acknowledged(
    store: SqliteBackend,
) -> None:
    await conversation(store)
    await admitted(store, message(1))
    held = await claimed(store)
    await store.log.fence("m_r1", held.epoch, 1)
    pages = await _pragma(store, "page_count")
    await _pragma(store, f"max_page_count = {pages + 4}")
    last = await _append_until_full(store)
    assert 0 < last < 20
    with pytest.raises(StoreFull):
        await store.conversations.prompt_text("big", store="x" * 100_000)
    assert await store.conversations.prompt_text("big") is None
    view = await store.log.read("m_r1", 0)
    assert view is not None
    assert view.last == last
    await _pragma(store, f"max_page_count = {pages + 1000}")
    assert await store.log.append("m_r1", held.epoch, 1, entries(last + 1, last + 1)) is Append.DONE
    assert await store.turns.finish(held.held, completed())


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
async def test_a_small_disk_that_fills_up_refuses_and_recovers(
    tmp_path: Path, clock: ManualClock, empty_file: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if not _done("mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk)):
        pytest.skip("this machine lets nobody mount")
    try:
        shutil.copyfile(empty_file, disk / "tertulia.db")
        store = SqliteBackend(disk / "tertulia.db", clock)
        await store.log.fence("m_r1", 1, 1)
        kept = await _append_until_full(store)
        assert kept > 50
        view = await store.log.read("m_r1", 0)
        assert view is not None
        assert view.last == kept
        await store.close()
        store = SqliteBackend(disk / "tertulia.db", clock)
        view = await store.log.read("m_r1", 0)
        assert view is not None
        assert view.last == kept
        await store.close()
    finally:
        assert _done("umount", str(disk))


async def test_a_database_that_another_program_holds_is_unavailable_and_then_is_not(
    store: SqliteBackend, path: Path
) -> None:
    await _pragma(store, "busy_timeout = 10")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    answers = await asyncio.gather(
        *(store.turns.admit(stateless(n), PLENTY) for n in range(3)), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    other.execute("ROLLBACK")
    other.close()
    await admitted(store, stateless(1))


async def test_a_step_that_fails_harms_no_other_of_its_group(store: SqliteBackend) -> None:
    await admitted(store, stateless(1))
    answers = await asyncio.gather(
        store.turns.admit(stateless(2), PLENTY),
        store.turns.admit(stateless(3, reply_id="m_r1"), PLENTY),
        store.turns.admit(stateless(4), PLENTY),
        return_exceptions=True,
    )
    assert [type(answer).__name__ for answer in answers] == ["Admitted", "ValueError", "Admitted"]
    assert (await store.accounts.spent("ana")).running == ("m_r1", "m_r2", "m_r4")


async def test_a_step_that_fails_halfway_leaves_nothing(store: SqliteBackend) -> None:
    def halfway(database: sqlite3.Connection) -> None:
        database.execute("INSERT INTO prompts VALUES ('half', 'way', 0)")
        raise ValueError("in the middle")

    answers = await asyncio.gather(
        store.conversations.prompt_text("before", store="kept"),
        store._writer.put(halfway),
        store.conversations.prompt_text("after", store="kept"),
        return_exceptions=True,
    )
    assert [str(answer) for answer in answers] == ["kept", "in the middle", "kept"]
    assert await store.conversations.prompt_text("half") is None


async def test_writes_beyond_the_queue_are_refused(path: Path) -> None:
    small = Writer(file.open_writer(path), waiting=10)
    answers = await asyncio.gather(*(_write(small) for _ in range(1000)), return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, StoreUnavailable)]
    assert len(answers) - len(refused) >= 10
    assert refused
    await small.close()


async def test_a_caller_who_has_gone_does_not_hold_up_the_others(store: SqliteBackend) -> None:
    gone = asyncio.create_task(store.turns.admit(stateless(1), PLENTY))
    await asyncio.sleep(0)
    gone.cancel()
    await admitted(store, stateless(2))
    found = await store.turns.find("ana", "m_r1")
    assert found is not None  # it was on its way: a retry under its key finds it
    assert found.status is Status.QUEUED


@pytest.mark.parametrize(("rows", "threads"), [(50, 1), (100_000, 2)])
async def test_a_look_takes_this_thread_unless_it_takes_long(
    path: Path, rows: int, threads: int
) -> None:
    """However many short ones came before it."""
    readers = Readers(path)
    asked = set[int]()

    def count(database: sqlite3.Connection) -> int:
        asked.add(threading.get_ident())
        return int(database.execute(COUNTING, {"rows": rows}).fetchone()[0])

    looks = 200 if threads == 1 else 1
    assert [await readers.look(count) for _ in range(looks)] == [rows] * looks
    assert threading.get_ident() in asked
    assert len(asked) == threads
    await readers.close()


async def test_live_replies_are_read_without_asking_the_database(
    store: SqliteBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.log.fence("m_r1", 1, 1)
    await store.log.append("m_r1", 1, 1, entries(1, 3))
    monkeypatch.setattr(writer.Writer, "put", _forbidden)
    for after in range(3):
        view = await store.log.read("m_r1", after)
        assert view is not None
        assert len(view.entries) == 3 - after


async def test_tails_in_memory_are_bounded_and_come_back(path: Path, clock: ManualClock) -> None:
    store = SqliteBackend(path, clock)
    store.log._tail_bytes = 5_000
    for n in range(20):
        await store.log.fence(f"m_r{n}", 1, 1)
        await store.log.append(f"m_r{n}", 1, 1, entries(1, 3))
    assert 0 < len(store.log._tails) < 10
    for n in range(20):
        await store.log.append(f"m_r{n}", 1, 1, entries(4, 4))
        view = await store.log.read(f"m_r{n}", 2)
        assert view is not None
        assert list(view.entries) == list(entries(3, 4))
    assert store.log._size == sum(tail.size for tail in store.log._tails.values()) <= 5_000
    await store.close()


async def test_a_tail_that_was_evicted_still_wakes_its_followers(store: SqliteBackend) -> None:
    await store.log.fence("m_r1", 1, 1)
    waiting = asyncio.create_task(store.log.wait("m_r1", 1, 0, timeout_s=50))
    await asyncio.sleep(0)
    store.log._tails.clear()
    await store.log.append("m_r1", 1, 1, entries(1, 1))
    async with asyncio.timeout(5):
        await waiting


async def test_deleted_words_are_in_no_file(path: Path, clock: ManualClock) -> None:
    canary = "xylophone-canary"
    store = SqliteBackend(path, clock)
    await conversation(store, "c_1", "c_2")
    await answered(store, message(1, content=canary, title=canary), text=canary)
    await store.log.fence("m_r1", 9, 1)
    await store.log.append("m_r1", 9, 2, [Entry(1, "delta", canary.encode())])
    assert canary.encode() in _bytes(path)
    await store.conversations.delete("ana", "c_1")
    await _gone(canary, path)
    await store.close()


async def test_the_words_of_a_deleted_message_are_in_no_file(
    path: Path, clock: ManualClock
) -> None:
    canary = "xylophone-canary"
    store = SqliteBackend(path, clock)
    await conversation(store, "c_1", "c_2")
    await answered(store, message(1, title="kept"), text="kept too")
    await answered(store, message(2, parent_id="m_r1", content=canary), text=canary)
    await answered(store, message(3, conversation="c_2", content=canary, title=canary), text="x")
    await store.messages.rate("ana", "m_r2", "down", canary)
    await store.log.fence("m_r2", 9, 1)
    await store.log.append("m_r2", 9, 2, [Entry(1, "delta", canary.encode())])
    found = await store.conversations.list(
        "ana", cursor=None, limit=9, query=canary, archived=False
    )
    assert len(found.items) == 2
    for gone in ("m_u2", "m_u3"):
        await store.branches.delete("ana", gone)
    await _gone(canary, path)
    assert b"kept too" in _bytes(path)
    await store.close()


async def test_forgotten_words_are_in_no_file(path: Path, clock: ManualClock) -> None:
    """S-48."""
    canary = "xylophone-canary"
    store = SqliteBackend(path, clock)
    said = (PromptMessage("user", canary),)
    await answered(store, stateless(1, prompt=said), text=canary)
    await store.log.fence("m_r1", 9, 1)
    await store.log.append("m_r1", 9, 2, [Entry(1, "delta", canary.encode())])
    assert canary.encode() in _bytes(path)
    clock.pass_(600)
    assert await store.loose.forget(ended_s=600, limit=10)
    await _gone(canary, path)
    await store.close()


async def test_deleted_words_leave_the_files_once_a_reader_has_ended(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "xylophone-canary"
    tries = threading.Semaphore(0)
    empty = Writer._empty_wal

    def _empty_wal(self: Writer) -> None:
        empty(self)
        tries.release()

    monkeypatch.setattr(Writer, "_empty_wal", _empty_wal)
    store = SqliteBackend(path, clock)
    await conversation(store, "c_1")
    await answered(store, message(1, content=canary), text=canary)
    reader = file.open_reader(path)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM messages").fetchone()[0] > 0
    await store.conversations.delete("ana", "c_1")
    for _ in range(3):
        assert await asyncio.to_thread(tries.acquire, timeout=20)
    assert canary.encode() in _bytes(path)
    reader.execute("COMMIT")
    await _gone(canary, path)  # and nobody writes a word more
    reader.close()
    await store.close()


async def test_searches_leave_a_thread_to_everybody_else(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    going_on = threading.Event()

    def slowly(_text: str, _word: str) -> bool:
        return going_on.wait(50) and False

    monkeypatch.setattr(file, "_holds", slowly)
    monkeypatch.setattr(conversations, "SEARCHES", 3)
    store = SqliteBackend(path, clock)
    await conversation(store)
    await answered(store, message(1))

    async def search() -> object:
        found = await store.conversations.list(
            "ana", cursor=None, limit=9, query="answer", archived=False
        )
        return found.items

    searches = [asyncio.create_task(search()) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(StoreUnavailable, match="too many searches"):
        await search()
    async with asyncio.timeout(20):
        assert await store.turns.find("ana", "m_r1") is not None
    going_on.set()
    assert await asyncio.gather(*searches) == [(), (), ()]
    assert len(await asyncio.gather(search(), search())) == 2
    await store.close()


async def test_deleted_words_leave_the_files_though_writes_never_pause(
    path: Path, clock: ManualClock
) -> None:
    canary = "xylophone-canary"
    store = SqliteBackend(path, clock)
    await conversation(store, "c_1")
    await answered(store, message(1, content=canary), text=canary)
    loop, over = asyncio.get_running_loop(), threading.Event()

    def again(_: sqlite3.Connection) -> None:
        if not over.is_set():  # so that something waits whenever a commit has ended
            store._writer._queue.put(writer._Asked(again, loop.create_future(), None))

    store._writer._queue.put(writer._Asked(again, loop.create_future(), None))
    await store.conversations.delete("ana", "c_1")
    assert await store.erasure.scrub("ana", clock.now()) == "overwritten"
    assert canary.encode() not in _bytes(path)
    over.set()
    await store.close()


async def test_a_scrub_that_a_reader_holds_up_is_not_told_as_done(
    path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SCRUBBED_S", 0.05)
    store = SqliteBackend(path, clock)
    await conversation(store, "c_1")
    reader = file.open_reader(path)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM conversations").fetchone()[0] > 0
    await store.conversations.delete("ana", "c_1")
    assert await store.erasure.scrub("ana", clock.now()) is None
    reader.execute("COMMIT")
    reader.close()
    monkeypatch.setattr(writer, "SCRUBBED_S", 20.0)
    assert await store.erasure.scrub("ana", clock.now()) == "overwritten"
    await store.close()


async def test_what_a_kill_left_in_the_log_of_writes_is_gone_after_the_order_s_look(
    path: Path, clock: ManualClock
) -> None:
    """The process that knew of the deleted words died between its commit and the emptying."""
    canary = "xylophone-canary"
    store = SqliteBackend(path, clock)
    await conversation(store, "c_1")
    await answered(store, message(1, content=canary), text=canary)
    holding = file.open_reader(path)
    holding.execute("BEGIN")
    assert holding.execute("SELECT count(*) FROM conversations").fetchone()[0] > 0
    await store.conversations.delete("ana", "c_1")
    left = path.parent / "killed"
    left.mkdir()
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{path}{suffix}", left / f"{path.name}{suffix}")
    holding.close()
    await store.close()
    assert canary.encode() in _bytes(left / path.name)
    after = SqliteBackend(left / path.name, clock)
    claim = await after.deletions.claim(lease_s=60)
    assert claim is not None
    assert claim.deletion.target == "c_1"
    assert await after.erasure.scrub("ana", clock.now()) == "overwritten"
    assert canary.encode() not in _bytes(left / path.name)
    await after.close()


def test_every_statement_is_valid_sql(path: Path) -> None:
    database = file.open_reader(path)
    folder = Path(sql.__file__).parent / "sqlite"
    for name in sorted(one.stem for one in folder.glob("*.sql")):
        for statement in statements("sqlite", name).values():
            holes = dict.fromkeys(_parameters(statement))
            count = statement.count("?")
            database.execute(f"EXPLAIN {statement}", holes or (None,) * count)
    database.close()


@pytest.mark.parametrize(
    ("noun", "name", "index"),
    [
        ("queue", "claim_next", "turns_queue"),
        ("conversations", "page", "conversations_list"),
        ("conversations", "last_looked", "COVERING INDEX conversations_list"),
        ("conversations", "search", "conversations_list"),
        ("conversations", "search", "m USING INDEX messages_signature"),
        ("branches", "path", "sqlite_autoindex_messages_2"),
        ("branches", "path", "s USING COVERING INDEX messages_below"),
        ("branches", "leaf_below", "m USING INDEX messages_below"),
        ("branches", "leaf_below", "m USING COVERING INDEX messages_below"),
        ("branches", "below", "messages_below"),
        ("branches", "turns_of", "sqlite_autoindex_turns_1 (reply_id=?)"),
        ("branches", "delete_turns", "sqlite_autoindex_turns_1 (reply_id=?)"),
        ("branches", "delete", "sqlite_autoindex_messages_2 (owner=? AND id=?)"),
        ("turns", "open_of_owner", "turns_running"),
        ("turns", "door", "sqlite_autoindex_messages_1 (owner=? AND conversation_id=?)"),
        ("conversations", "turns_of", "sqlite_autoindex_turns_1 (reply_id=?)"),
        ("deletions", "aged_conversations", "conversations_list (owner=? AND archived=? AND p"),
        ("messages", "page", "sqlite_autoindex_messages_1"),
        ("loose", "ended", "turns_ended"),
    ],
)
def test_the_statements_of_the_turn_path_use_their_index(
    path: Path, noun: str, name: str, index: str
) -> None:
    database = file.open_reader(path)
    statement = statements("sqlite", noun)[name]
    holes = dict.fromkeys(_parameters(statement))
    rows = database.execute(f"EXPLAIN QUERY PLAN {statement}", holes).fetchall()
    plan = [row["detail"] for row in rows]
    outer = [row["detail"] for row in rows if row["parent"] == 0]
    database.close()
    assert any(index in detail for detail in plan), plan
    # A list is read in its order, and no further than it is asked for.
    is_read_whole = noun != "conversations" or "turns" in name
    assert is_read_whole or "USE TEMP B-TREE FOR ORDER BY" not in outer, plan
    assert not any(detail.startswith("SCAN turns") and index not in detail for detail in plan)


async def _append_until_full(store: SqliteBackend) -> int:
    """Fills the log of the held reply; the last id that was acknowledged."""
    for last in range(1000):
        try:
            big = Entry(last + 1, "delta", b"x" * 2000)
            assert await store.log.append("m_r1", 1, 1, [big]) is Append.DONE
        except StoreFull:
            return last
    raise AssertionError("the disk never filled up")


def _done(*command: str) -> bool:
    return os.spawnvp(os.P_WAIT, command[0], command) == 0


async def _pragma(store: SqliteBackend, words: str) -> int:
    row = await store._writer.put(lambda database: database.execute(f"PRAGMA {words}").fetchone())
    return int(row[0]) if row is not None else 0


async def _write(small: Writer) -> None:
    await small.put(lambda _: None)


def _forbidden(*_: object) -> None:
    raise AssertionError("the database was asked")


async def _gone(words: str, path: Path) -> None:
    """Waits until no file beside the database has the words: soon after, not at once."""
    async with asyncio.timeout(20):
        while words.encode() in _bytes(path):  # noqa: ASYNC110  # files tell no event
            await asyncio.sleep(writer.SCRUB_AGAIN_S)


def _bytes(path: Path) -> bytes:
    return b"".join(one.read_bytes() for one in path.parent.iterdir() if one.is_file())


def _parameters(statement: str) -> list[str]:
    return re.findall(r":([a-z_0-9]+)", statement)
