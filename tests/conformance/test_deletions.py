"""Promises of the `Deletions` and `Erasure` ports: orders that no crash loses, and the end of
accounts and of what is old."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tertulia.core.batches import NewBatch
from tertulia.core.deletions import DAY_S, Deletion, DeletionKind, Place, Reach, ordered
from tertulia.core.files import FilePart, FileRoom, NewFile
from tertulia.core.identities import Identity
from tertulia.core.types import ApiKey, Missing
from tertulia.ports_of_deletions import Aged, Claimed
from tests.conformance.world import (
    PLENTY,
    START,
    Backend,
    ManualClock,
    admitted,
    answered,
    claimed,
    conversation,
    message,
    person,
    stateless,
    used_and_held,
)

pytestmark = pytest.mark.anyio

DAY = 86_400.0


async def listed(backend: Backend) -> list[tuple[str, str, DeletionKind]]:
    """Every order, newest first."""
    page = await backend.deletions.page(cursor=None, limit=100)
    return [(one.owner, one.target, one.kind) for one in page.items]


async def taken(backend: Backend) -> Claimed:
    claim = await backend.deletions.claim(lease_s=60)
    assert claim is not None
    return claim


async def test_a_deletion_leaves_an_order_without_a_word_of_it(backend: Backend) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    await backend.conversations.delete("ana", "c_1")
    claim = await taken(backend)
    rows = {"rows": Reach("deleted", START)}
    kind = DeletionKind.CONVERSATION
    assert claim == Claimed(Deletion("ana", "c_1", kind, START, rows), START)


async def test_what_is_not_there_leaves_no_order(backend: Backend) -> None:
    await conversation(backend)
    assert await backend.conversations.delete("ben", "c_1") is None
    assert await backend.conversations.delete("ana", "c_2") is None
    assert await listed(backend) == []


async def test_calls_that_are_deleted_leave_one_order(backend: Backend, clock: ManualClock) -> None:
    await answered(backend, stateless(1))
    await backend.conversations.delete("ana", None)
    clock.pass_(1)
    await backend.conversations.delete("ana", None)
    assert await listed(backend) == [("ana", "", DeletionKind.CALLS)]
    assert (await taken(backend)).deletion.requested_at == START + 1


async def test_an_order_is_given_to_one_until_its_time_is_over(
    backend: Backend, clock: ManualClock
) -> None:
    await conversation(backend)
    await backend.conversations.delete("ana", "c_1")
    first = await taken(backend)
    assert await backend.deletions.claim(lease_s=60) is None
    clock.pass_(60)
    assert (await taken(backend)).deletion == first.deletion


async def test_orders_are_given_in_the_order_in_which_they_are_due(
    backend: Backend, clock: ManualClock
) -> None:
    for n in (2, 1):
        await conversation(backend, f"c_{n}")
        await backend.conversations.delete("ana", f"c_{n}")
        clock.pass_(1)
    given = [(await taken(backend)).deletion.target for _ in range(2)]
    assert given == ["c_2", "c_1"]


async def test_what_a_look_found_is_kept_and_the_next_one_waits(
    backend: Backend, clock: ManualClock
) -> None:
    await conversation(backend)
    await backend.conversations.delete("ana", "c_1")
    deletion, now = await taken(backend)
    seen = replace(deletion, looks=1, reached={"cache:a": Reach("pending", now)})
    assert await backend.deletions.save(seen, pause_s=20)
    clock.pass_(19)
    assert await backend.deletions.claim(lease_s=60) is None
    clock.pass_(1)
    assert (await taken(backend)).deletion == seen


async def test_only_the_first_of_two_looks_is_kept(backend: Backend) -> None:
    await conversation(backend)
    await backend.conversations.delete("ana", "c_1")
    deletion, now = await taken(backend)
    assert await backend.deletions.save(replace(deletion, looks=1), pause_s=0)
    late = replace(deletion, looks=1, done_at=now)
    assert not await backend.deletions.save(late, pause_s=0)
    assert (await taken(backend)).deletion.done_at is None


async def test_a_look_says_nothing_about_what_was_ordered_after_it(
    backend: Backend, clock: ManualClock
) -> None:
    await answered(backend, stateless(1))
    await backend.conversations.delete("ana", None)
    deletion, now = await taken(backend)
    clock.pass_(1)
    await backend.conversations.delete("ana", None)
    assert not await backend.deletions.save(replace(deletion, looks=1, done_at=now), pause_s=0)
    assert (await taken(backend)).deletion.requested_at == START + 1


async def test_an_order_that_is_over_is_given_to_nobody_and_swept_at_last(
    backend: Backend, clock: ManualClock
) -> None:
    await conversation(backend, "c_1", "c_2")
    await backend.conversations.delete("ana", "c_1")
    deletion, now = await taken(backend)
    clock.pass_(5)
    await backend.conversations.delete("ana", "c_2")
    over = replace(deletion, looks=1, done_at=now)
    assert await backend.deletions.save(over, pause_s=0)
    assert not await backend.deletions.save(replace(over, looks=2), pause_s=0)
    page = await backend.deletions.page(cursor=None, limit=5)
    assert page.items[1] == replace(over, done_at=START + 5)
    assert await backend.deletions.overdue(age_s=0) == 1
    clock.pass_(99)
    assert await backend.deletions.sweep(rows=10, kept_s=100) == 0
    clock.pass_(1)
    assert await backend.deletions.sweep(rows=10, kept_s=100) == 1
    assert await listed(backend) == [("ana", "c_2", DeletionKind.CONVERSATION)]


async def test_orders_that_take_long_are_counted(backend: Backend, clock: ManualClock) -> None:
    await conversation(backend)
    await backend.conversations.delete("ana", "c_1")
    clock.pass_(60)
    assert await backend.deletions.overdue(age_s=61) == 0
    assert await backend.deletions.overdue(age_s=60) == 1


async def test_orders_are_listed_page_after_page(backend: Backend, clock: ManualClock) -> None:
    for n in range(5):
        await conversation(backend, f"c_{n}")
        await backend.conversations.delete("ana", f"c_{n}")
        clock.pass_(n % 2)
    seen: list[str] = []
    cursor: str | None = None
    for _ in range(3):
        page = await backend.deletions.page(cursor=cursor, limit=2)
        seen += [one.target for one in page.items]
        cursor = page.next_cursor
    assert (seen, cursor) == (["c_4", "c_3", "c_2", "c_1", "c_0"], None)
    for foreign in ("", "x", "WzEsMl0", "W251bGwsMSwyXQ", "WzEsMSwyXQ", "WzEsIngiLDJd"):
        with pytest.raises(ValueError, match="cursor"):
            await backend.deletions.page(cursor=foreign, limit=2)


async def test_nothing_is_left_of_what_was_deleted(backend: Backend, clock: ManualClock) -> None:
    await conversation(backend, "c_1", "c_2")
    await answered(backend, message(1))
    await backend.conversations.delete("ana", "c_1")
    deletion, _ = await taken(backend)
    assert await backend.erasure.left(deletion) == frozenset()
    there = replace(deletion, target="c_2")
    assert await backend.erasure.left(there) == {Place.ROWS}
    of_some = replace(there, kind=DeletionKind.MESSAGES)
    assert await backend.erasure.left(of_some) == frozenset()
    assert await backend.erasure.scrub("ana", clock.now()) in ("overwritten", "vacuumed")


async def test_an_account_with_instructions_comes_to_its_end(backend: Backend) -> None:
    """What keeps their number from being used again holds no word, and is nothing that is left."""
    await backend.instructions.write("ana", "Rhyme.", tokens=2, tokenizer="small")
    of_account = ordered("ana", "ana", DeletionKind.ACCOUNT, 0.0)
    before = await backend.erasure.left(of_account)
    await backend.instructions.forget("ana")
    assert Place.ROWS in before
    assert Place.ROWS not in await backend.erasure.left(of_account)


# Every table with somebody's rows: those that an account takes with it, and those that stay, as
# they hold numbers and ids alone. Whoever adds a table decides, and deletes what has to go.
ERASED = {
    *("users", "identities", "sessions", "links", "api_keys", "conversations", "messages", "turns"),
    *("files", "file_parts", "batches", "batch_lines", "imports", "instructions"),
    *("summaries", "tasks", "shares", "deleted_keys"),
}
KEPT = {"settlements", "balances", "doors", "tags", "deletions"}


def test_every_table_of_somebody_s_is_known_to_go_or_to_stay(empty_file: Path) -> None:
    with closing(sqlite3.connect(empty_file)) as database:
        tables = [name for (name,) in database.execute(_TABLES)]
        columns = {
            name: {row[1] for row in database.execute(f"PRAGMA table_info({name})")}
            for name in tables
        }
    somebodys = {name for name, has in columns.items() if has & {"owner", "user_id"}}
    assert somebodys | {"users"} == ERASED | KEPT


_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"


async def account(backend: Backend) -> None:
    """Ana, with one of everything."""
    identity = Identity("https://id.example.org", "ana-at-work", "ana", START)
    await backend.identities.add(person("ana", id="ana"), identity)
    await backend.sessions.open("ana", "session-1", lasts_s=900)
    await backend.sessions.add_link("ana", "link-1", lasts_s=900)
    await backend.api_keys.add(ApiKey("key_1", "ana", "laptop", "tk_ab", "hash-1", START))
    await conversation(backend)
    await answered(backend, message(1))
    await answered(backend, stateless(2))
    file = NewFile("ana", "file_1", "in.jsonl", "batch", kept_s=DAY)
    await backend.files.write(file, FilePart(0, b"x", is_last=True), FileRoom(10, 1_000))
    await backend.batches.create(
        NewBatch(
            owner="ana",
            id="batch_1",
            key=None,
            body_sha="sha",
            input_file_id="file_1",
            output_file_id="file_2",
            error_file_id="file_3",
            endpoint="/v1/chat/completions",
            metadata=None,
            output_kept_s=DAY,
        ),
        limit=5,
    )


async def test_a_closed_account_is_found_by_nobody_for_good(
    backend: Backend, clock: ManualClock
) -> None:
    await account(backend)
    assert await backend.erasure.close("ana")
    await backend.api_keys.add(ApiKey("key_2", "ana", "late", "tk_cd", "hash-2", START))
    assert not await backend.erasure.close("ana")
    assert not await backend.erasure.close("nobody")
    assert await backend.accounts.find("ana") is None
    assert await backend.accounts.by_name("ANA") is None
    assert await backend.accounts.change("ana", {"disabled": False}) is None
    assert await backend.accounts.count() == 0
    assert await backend.identities.find("https://id.example.org", "ana-at-work") is None
    assert await backend.identities.of_user("ana") == []
    assert await backend.sessions.find("session-1") is None
    assert await backend.sessions.redeem("link-1") is None
    assert await backend.api_keys.by_secret("hash-1") is None
    assert await backend.api_keys.list("ana") == ()
    assert await backend.accounts.add(person("Ana", id="u_new")) is None
    rows = {"rows": Reach("pending", START)}
    kind = DeletionKind.ACCOUNT
    assert (await taken(backend)).deletion == Deletion("ana", "ana", kind, START, rows)


async def test_no_turn_is_admitted_for_who_has_left(backend: Backend) -> None:
    """Whoever brings a batch's line, or a slow call, looked the user up before he left."""
    await account(backend)
    await backend.erasure.close("ana")
    assert await backend.turns.admit(stateless(3), PLENTY) == Missing()
    assert await backend.turns.admit(message(4, parent_id="m_r1"), PLENTY) == Missing()
    assert await backend.turns.find_by_key("ana", "key-3") is None
    assert await used_and_held(backend, "ana") == (300, 0, ())


async def test_an_account_s_order_is_the_only_one_and_its_places_are_all(
    backend: Backend,
) -> None:
    await account(backend)
    await backend.erasure.close("ana")
    deletion, _ = await taken(backend)
    places = {Place.ROWS, Place.FILES, Place.BATCHES}
    assert await backend.erasure.left(deletion) == places
    await backend.batches.delete("ana")
    await backend.conversations.delete("ana", "c_1")
    await backend.conversations.delete("ana", None)
    await backend.files.delete("ana", None)
    assert await backend.erasure.left(deletion) == {Place.FILES, Place.BATCHES}
    await backend.files.sweep(parts=10)
    await backend.files.sweep(parts=10)
    await backend.batch_work.sweep(rows=10, kept_s=DAY)
    assert await backend.erasure.left(deletion) == frozenset()
    assert await listed(backend) == [("ana", "ana", DeletionKind.ACCOUNT)]
    assert await used_and_held(backend, "ana") == (300, 0, ())  # numbers stay


async def test_a_running_turn_of_a_closed_account_is_still_there_to_be_ended(
    backend: Backend,
) -> None:
    await account(backend)
    await admitted(backend, message(3, parent_id="m_r1"))
    held = await claimed(backend)
    await backend.erasure.close("ana")
    assert (await backend.accounts.spent("ana")).running == ("m_r3",)
    assert await backend.turns.seize("ana", "m_r3", "stopped") is not None
    assert held.reply_id == "m_r3"


async def test_what_nobody_has_touched_for_so_long_is_named(
    backend: Backend, clock: ManualClock
) -> None:
    await conversation(backend, "c_1", "c_2", "c_3")
    await conversation(backend, "c_b", owner="ben")
    await backend.conversations.change("ana", "c_3", {"pinned": True, "archived": True})
    clock.pass_(10)
    await answered(backend, message(2, conversation="c_2"))
    await answered(backend, stateless(3, owner="ben"))
    await admitted(backend, stateless(4, owner="cleo"))
    clock.pass_(10)
    kept = {"ana": 15.0, "ben": 10.0, "cleo": 1.0}
    aged = await backend.erasure.aged(kept, limit=10)
    assert aged == [Aged("ana", "c_1"), Aged("ana", "c_3"), Aged("ben", "c_b")]
    assert await backend.erasure.aged(kept, limit=2) == aged[:2]
    assert await backend.erasure.aged({"ana": 21.0, "ben": 21.0}, limit=10) == []
    assert await backend.erasure.aged({}, limit=10) == []


async def test_age_deletes_only_what_is_still_old(backend: Backend, clock: ManualClock) -> None:
    await conversation(backend, "c_1", "c_2")
    clock.pass_(30 * DAY_S)
    await answered(backend, message(2, conversation="c_2"))
    assert await backend.conversations.delete("ana", "c_2", idle_s=30 * DAY_S) is None
    assert await backend.conversations.delete("ana", "c_1", idle_s=30 * DAY_S + 1) is None
    assert await backend.conversations.delete("ana", "c_1", idle_s=30 * DAY_S) == ()
    assert await backend.conversations.get("ana", "c_1") is None
    assert await backend.conversations.get("ana", "c_2") is not None
    assert await listed(backend) == [("ana", "c_1", DeletionKind.RETENTION)]
