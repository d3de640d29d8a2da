"""Promises of the `Conversations` port: made once, listed in order, deleted to the last copy."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tertulia.core.types import Conversation, Missing, Page
from tests.conformance.world import (
    PLENTY,
    START,
    Backend,
    ManualClock,
    admitted,
    answered,
    claimed,
    completed,
    conversation,
    entries,
    message,
    note,
    stateless,
    used_and_held,
)

pytestmark = pytest.mark.anyio


async def listed(
    backend: Backend,
    *,
    owner: str = "ana",
    cursor: str | None = None,
    limit: int = 50,
    query: str = "",
    archived: bool = False,
) -> Page[Conversation]:
    return await backend.conversations.list(
        owner, cursor=cursor, limit=limit, query=query, archived=archived
    )


def ids(page: Page[Conversation]) -> list[str]:
    return [found.id for found in page.items]


async def test_a_new_conversation_is_empty_and_the_owners(backend: Backend) -> None:
    made = await backend.conversations.create("ana", "c_1", key="k", prompt_version="v1")
    assert made == Conversation("ana", "c_1", "", "v1", START, START)
    assert await backend.conversations.get("ana", "c_1") == made
    assert await backend.conversations.get("ben", "c_1") is None
    assert await backend.conversations.get("ana", "c_2") is None


async def test_the_same_key_makes_one_conversation(backend: Backend) -> None:
    made = await asyncio.gather(
        *(
            backend.conversations.create("ana", f"c_{n}", key="k", prompt_version="v1")
            for n in range(20)
        )
    )
    assert len({one.id for one in made}) == 1
    assert ids(await listed(backend)) == [made[0].id]
    other = await backend.conversations.create("ben", "c_b", key="k", prompt_version="v1")
    assert other.id == "c_b"


async def test_without_a_key_every_call_makes_one(backend: Backend) -> None:
    await conversation(backend, "c_1", "c_2")
    assert ids(await listed(backend)) == ["c_2", "c_1"]


async def test_the_newest_come_first_and_pinned_ones_before_them(
    backend: Backend, clock: ManualClock
) -> None:
    for name in ("c_1", "c_2", "c_3"):
        await conversation(backend, name)
        clock.pass_(1)
    await backend.conversations.change("ana", "c_1", {"pinned": True})
    assert ids(await listed(backend)) == ["c_1", "c_3", "c_2"]
    await admitted(backend, message(1, conversation="c_2"))
    assert ids(await listed(backend)) == ["c_1", "c_2", "c_3"]


async def test_pages_follow_each_other_while_new_ones_arrive(
    backend: Backend, clock: ManualClock
) -> None:
    for n in range(7):
        await conversation(backend, f"c_{n}")
        clock.pass_(0 if n % 2 else 1)
    await backend.conversations.change("ana", "c_3", {"pinned": True})
    seen: list[str] = []
    cursor: str | None = None
    for page_number in range(4):
        page = await listed(backend, cursor=cursor, limit=2)
        seen += ids(page)
        cursor = page.next_cursor
        await conversation(backend, f"c_new{page_number}")
        if cursor is None:
            break
    assert seen == ["c_3", "c_6", "c_5", "c_4", "c_2", "c_1", "c_0"]
    assert cursor is None


async def test_a_page_that_holds_the_last_has_no_cursor(backend: Backend) -> None:
    await conversation(backend, "c_1", "c_2")
    assert (await listed(backend, limit=2)).next_cursor is None
    assert (await listed(backend, owner="ben")).items == ()


@pytest.mark.parametrize("cursor", ["", "x", "W10", "é", "WzEsIngiLCJjIl0", "bnVsbA", "A" * 5000])
async def test_a_foreign_cursor_is_refused(backend: Backend, cursor: str) -> None:
    with pytest.raises(ValueError, match="cursor"):
        await listed(backend, cursor=cursor)


async def test_archived_ones_are_a_list_of_their_own(backend: Backend) -> None:
    await conversation(backend, "c_1", "c_2")
    await backend.conversations.change("ana", "c_1", {"archived": True})
    assert ids(await listed(backend)) == ["c_2"]
    assert ids(await listed(backend, archived=True)) == ["c_1"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("question 1", ["c_1"]),
        ("QUESTION", ["c_2", "c_1"]),
        ("straße", ["c_2"]),
        ("STRASSE", ["c_2"]),
        ("50%", ["c_1"]),
        ("5%0", []),
        ("_", []),
        ("\\", []),
        ("title 2", ["c_2"]),
        ("nothing like it", []),
        ("a'; DROP TABLE turns; --", []),
    ],
)
async def test_a_search_is_literal_in_any_case_over_titles_and_texts(
    backend: Backend, query: str, found: list[str]
) -> None:
    await conversation(backend, "c_1", "c_2")
    await conversation(backend, "c_b", owner="ben")
    await answered(backend, message(1), text="It is 50% done")
    await answered(backend, message(2, conversation="c_2"), text="In der Straße")
    await answered(backend, message(3, owner="ben", conversation="c_b"), text="50% straße")
    assert ids(await listed(backend, query=query)) == found


async def test_a_search_is_paged_too(backend: Backend) -> None:
    await conversation(backend, "c_1", "c_2", "c_3")
    for n in (1, 2, 3):
        await answered(backend, message(n, conversation=f"c_{n}"))
    first = await listed(backend, query="answer", limit=2)
    second = await listed(backend, query="answer", limit=2, cursor=first.next_cursor)
    assert (ids(first), ids(second)) == (["c_3", "c_2"], ["c_1"])


async def test_a_change_touches_only_what_it_names(backend: Backend, clock: ManualClock) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    before = await backend.conversations.get("ana", "c_1")
    assert before is not None
    clock.pass_(10)
    changed = await backend.conversations.change("ana", "c_1", {"title": "New", "pinned": True})
    assert changed == replace(before, title="New", titled_by="person", pinned=True)
    assert await backend.conversations.get("ana", "c_1") == changed
    assert await backend.conversations.change("ben", "c_1", {"title": "Stolen"}) is None
    assert await backend.conversations.change("ana", "c_2", {"title": "x"}) is None
    with pytest.raises(ValueError, match="owner"):
        await backend.conversations.change("ana", "c_1", {"owner": "ben"})
    assert await backend.conversations.get("ana", "c_1") == changed


async def test_the_reply_in_progress_is_named(backend: Backend, clock: ManualClock) -> None:
    await conversation(backend)
    await answered(backend, message(0))
    await admitted(backend, message(1, parent_id="m_r0"))
    clock.pass_(1)
    await admitted(backend, message(2))
    page = await listed(backend)
    assert page.items[0].active_message_id == "m_r2"
    assert page.items[0] == await backend.conversations.get("ana", "c_1")


async def test_deleting_reaches_everything_but_the_numbers(
    backend: Backend, clock: ManualClock
) -> None:
    await conversation(backend, "c_1", "c_2")
    await answered(backend, message(1))
    await answered(backend, message(2, conversation="c_2"))
    await admitted(backend, message(3, parent_id="m_r1"))
    held = await claimed(backend)
    await note(backend, held)
    await backend.log.fence("m_r3", held.epoch, 1)
    await backend.log.append("m_r3", held.epoch, 1, entries(1, 2))
    assert await backend.conversations.delete("ben", "c_1") is None
    assert await backend.conversations.delete("ana", "c_1") == ("m_r3",)
    assert await backend.conversations.delete("ana", "c_1") is None
    assert await backend.conversations.get("ana", "c_1") is None
    assert await backend.messages.page("ana", "c_1", before=None, limit=10) is None
    for message_id in ("m_u1", "m_r1", "m_u3", "m_r3"):
        assert await backend.messages.find("ana", message_id) is None
    assert await backend.messages.texts("ana", ["m_u1", "m_r1"]) == ()
    assert await backend.messages.branch("ana", "c_1", "m_r1") is None
    for n in (1, 3):
        assert await backend.turns.find("ana", f"m_r{n}") is None
        assert await backend.turns.find_by_key("ana", f"key-{n}") is None
        assert await backend.log.read(f"m_r{n}", 0) is None
    assert ids(await listed(backend)) == ["c_2"]
    assert ids(await listed(backend, query="question 1")) == []
    # A reply that was running may have cost its reservation; numbers stay, words do not.
    assert await used_and_held(backend, "ana") == (150 + 150 + 300, 0, ())


async def test_what_was_said_without_a_conversation_is_deleted_alone(backend: Backend) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    await answered(backend, stateless(2))
    await answered(backend, stateless(3, owner="ben"))
    await admitted(backend, stateless(4))
    assert await backend.conversations.delete("ana", None) == ("m_r4",)
    assert await backend.conversations.delete("ana", None) == ()
    for n in (2, 4):
        assert await backend.turns.find("ana", f"m_r{n}") is None
        assert await backend.log.read(f"m_r{n}", 0) is None
    assert await backend.turns.find("ana", "m_r1") is not None
    assert await backend.turns.find("ben", "m_r3") is not None
    assert ids(await listed(backend)) == ["c_1"]


async def test_a_turn_that_nobody_had_claimed_is_deleted_for_nothing(backend: Backend) -> None:
    await conversation(backend)
    await admitted(backend, message(1))
    await backend.conversations.delete("ana", "c_1")
    assert await used_and_held(backend, "ana") == (0, 0, ())


async def test_no_late_writer_brings_a_deleted_conversation_back(backend: Backend) -> None:
    await conversation(backend)
    await admitted(backend, message(1))
    held = await claimed(backend)
    await backend.conversations.delete("ana", "c_1")
    assert not await note(backend, held)
    assert not await backend.turns.finish(held.held, completed())
    assert await backend.turns.seize("ana", "m_r1", "stopped") is None
    assert await backend.queue.claim(lease_s=2) is None
    assert await backend.turns.admit(message(1), PLENTY) == Missing()
    assert await backend.messages.rate("ana", "m_r1", "up", "") is None
    assert (await listed(backend)).items == ()


async def test_a_key_of_a_deleted_conversation_is_free_again(backend: Backend) -> None:
    await backend.conversations.create("ana", "c_1", key="k", prompt_version="v1")
    await backend.conversations.delete("ana", "c_1")
    made = await backend.conversations.create("ana", "c_2", key="k", prompt_version="v1")
    assert made.id == "c_2"


async def test_a_prompt_version_never_changes(backend: Backend) -> None:
    assert await backend.conversations.prompt_text("v1") is None
    assert await backend.conversations.prompt_text("v1", store="Be kind.") == "Be kind."
    assert await backend.conversations.prompt_text("v1", store="Be rude.") == "Be kind."
    assert await backend.conversations.prompt_text("v1") == "Be kind."
