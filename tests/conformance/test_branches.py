"""Promises of the `Branches` port: what is shown and remembered, what a deletion reaches."""

from __future__ import annotations

import pytest

from tertulia.core.remembering import Title
from tertulia.core.types import HEAD, Append, Failure, Head, Missing, Repeated, Status, Version
from tests.conformance.world import (
    PLENTY,
    Backend,
    admitted,
    answered,
    claimed,
    completed,
    conversation,
    entries,
    message,
    note,
    regenerate,
    used_and_held,
)

pytestmark = pytest.mark.anyio


async def shown(backend: Backend, through: str | Head = HEAD) -> list[str]:
    """The ids of a page of a branch."""
    found = await backend.branches.page("ana", "c_1", through=through, before=None, limit=50)
    assert found is not None
    return [one.id for one in found.items]


async def head(backend: Backend, name: str = "c_1") -> str | None:
    found = await backend.conversations.get("ana", name)
    assert found is not None
    return found.head_message_id


async def fork(backend: Backend) -> None:
    """Two answers to the second question; two turns more after the second of them.

    u1 r1 u2 r2, and beside r2: r3 u4 r4 u5 r5, which is shown.
    """
    await conversation(backend)
    await answered(backend, message(1))
    await answered(backend, message(2, parent_id="m_r1"))
    await answered(backend, regenerate(3, "m_u2"))
    await answered(backend, message(4, parent_id="m_r3"))
    await answered(backend, message(5, parent_id="m_r4"))


LONG_BRANCH = ["m_u1", "m_r1", "m_u2", "m_r3", "m_u4", "m_r4", "m_u5", "m_r5"]


async def test_a_branch_that_is_left_and_chosen_again_has_all_its_turns(backend: Backend) -> None:
    """S-24."""
    await fork(backend)
    assert await shown(backend) == LONG_BRANCH
    before = await backend.conversations.get("ana", "c_1")
    left = await backend.branches.switch("ana", "c_1", "m_r2")
    assert left is not None
    assert left.head_message_id == "m_r2"
    assert await backend.conversations.get("ana", "c_1") == left
    assert await shown(backend) == ["m_u1", "m_r1", "m_u2", "m_r2"]
    back = await backend.branches.switch("ana", "c_1", "m_r3")
    assert back == before
    assert await shown(backend) == LONG_BRANCH


async def test_each_branch_remembers_its_own_leaf(backend: Backend) -> None:
    await fork(backend)
    await answered(backend, message(6, parent_id="m_r3"))  # a second way on from the same answer
    assert await shown(backend, "m_r3") == ["m_u1", "m_r1", "m_u2", "m_r3", "m_u6", "m_r6"]
    await backend.branches.switch("ana", "c_1", "m_u4")
    await backend.branches.switch("ana", "c_1", "m_r2")
    assert await shown(backend, "m_r3") == LONG_BRANCH
    assert await shown(backend, "m_u6") == ["m_u1", "m_r1", "m_u2", "m_r3", "m_u6", "m_r6"]
    assert await shown(backend, "m_u1") == ["m_u1", "m_r1", "m_u2", "m_r2"]


async def test_what_is_read_stays_when_another_device_adds_a_sibling(backend: Backend) -> None:
    """S-29."""
    await conversation(backend)
    await answered(backend, message(1))
    await answered(backend, regenerate(2, "m_u1"))
    await admitted(backend, regenerate(3, "m_u1"))
    assert await head(backend) == "m_r3"
    page = await backend.branches.page("ana", "c_1", through="m_r1", before=None, limit=9)
    assert page is not None
    assert [one.id for one in page.items] == ["m_u1", "m_r1"]
    assert page.items[0].version == Version(1, 1, None, None)
    assert page.items[1].version == Version(1, 3, None, "m_r2")


async def test_a_page_says_which_version_each_message_is(backend: Backend) -> None:
    await fork(backend)
    await answered(backend, message(6))
    page = await backend.messages.page("ana", "c_1", before=None, limit=50)
    assert page is not None
    versions = {one.id: one.version for one in page.items}
    assert versions["m_u1"] == Version(1, 2, None, "m_u6")
    assert versions["m_u6"] == Version(2, 2, "m_u1", None)
    assert versions["m_r3"] == Version(2, 2, "m_r2", None)
    assert versions["m_r6"] == Version(1, 1, None, None)
    assert all(one.ids is None for one in page.items)


async def test_a_branch_is_read_page_by_page_from_its_leaf(backend: Backend) -> None:
    await fork(backend)
    read: list[str] = []
    before: str | None = None
    for _ in range(4):
        page = await backend.branches.page("ana", "c_1", through=HEAD, before=before, limit=3)
        assert page is not None
        read = [one.id for one in page.items] + read
        before = page.next_cursor
        if before is None:
            break
    assert read == LONG_BRANCH
    whole = await backend.branches.page("ana", "c_1", through=HEAD, before=None, limit=8)
    assert whole is not None
    assert whole.next_cursor is None


async def test_no_branch_leads_through_what_is_not_there(backend: Backend) -> None:
    await conversation(backend, "c_1", "c_2")
    empty = await backend.branches.page("ana", "c_1", through=HEAD, before=None, limit=9)
    assert empty is not None
    assert (empty.items, empty.next_cursor) == ((), None)
    await answered(backend, message(1))
    pages = [
        await backend.branches.page(owner, name, through=through, before=before, limit=9)
        for owner, name, through, before in (
            ("ben", "c_1", HEAD, None),
            ("ana", "c_3", HEAD, None),
            ("ana", "c_2", "m_r1", None),
            ("ana", "c_1", "m_unknown", None),
            ("ana", "c_1", HEAD, "m_unknown"),
            ("ana", "c_2", HEAD, "m_r1"),
        )
    ]
    assert pages == [None] * 6
    for owner, name, target in (
        ("ben", "c_1", "m_r1"),
        ("ana", "c_2", "m_r1"),
        ("ana", "c_1", "x"),
    ):
        assert await backend.branches.switch(owner, name, target) is None
    assert await head(backend) == "m_r1"
    assert await head(backend, "c_2") is None


async def test_only_a_turn_and_a_switch_move_the_head(backend: Backend) -> None:
    """S-23: a rating, a title and the end of an older turn come late, and the chat stays."""
    await conversation(backend)
    await answered(backend, message(1))
    await admitted(backend, message(2, parent_id="m_r1"))
    older = await claimed(backend)
    await answered(backend, message(3))
    assert await head(backend) == "m_r3"
    await backend.messages.rate("ana", "m_r1", "up", "")
    await backend.conversations.change("ana", "c_1", {"title": "Late"})
    assert await note(backend, older)
    assert await backend.turns.finish(older.held, completed())
    assert await head(backend) == "m_r3"
    await backend.branches.switch("ana", "c_1", "m_r1")
    assert await head(backend) == "m_r2"


async def test_a_failed_turn_that_runs_again_is_shown_again(backend: Backend) -> None:
    await conversation(backend)
    failed = completed(status=Status.FAILED, finish=None, failure=Failure("x", "y", retryable=True))
    await admitted(backend, message(1))
    assert await backend.turns.finish((await claimed(backend)).held, failed)
    await answered(backend, message(2))
    await admitted(backend, message(1))
    assert await head(backend) == "m_r1"
    assert await backend.turns.finish((await claimed(backend)).held, completed())
    await answered(backend, regenerate(3, "m_u2"))
    assert await shown(backend, "m_u1") == ["m_u1", "m_r1"]


async def test_deleting_a_message_takes_all_below_it_and_nothing_else(backend: Backend) -> None:
    await fork(backend)
    assert await backend.branches.running("ana", "m_r3") == ()
    assert await backend.branches.delete("ana", "m_r3") == ()
    assert await shown(backend) == ["m_u1", "m_r1", "m_u2", "m_r2"]
    assert await backend.branches.delete("ana", "m_r3") is None
    for n in (3, 4, 5):
        assert await backend.messages.find("ana", f"m_r{n}") is None
        assert await backend.turns.find("ana", f"m_r{n}") is None
        assert await backend.turns.find_by_key("ana", f"key-{n}") is None
    assert await backend.messages.texts("ana", ["m_u4", "m_r4", "m_u5"]) == ()
    for n in (1, 2):
        assert await backend.turns.find("ana", f"m_r{n}") is not None
    assert await used_and_held(backend, "ana") == (5 * 150, 0, ())  # numbers stay
    kept = await backend.conversations.list("ana", cursor=None, limit=9, query="4", archived=False)
    assert kept.items == ()


async def test_the_head_moves_to_the_nearest_leaf_that_is_left(backend: Backend) -> None:
    await fork(backend)
    await backend.branches.delete("ana", "m_u5")
    assert await head(backend) == "m_r4"
    await backend.branches.delete("ana", "m_r4")
    assert await head(backend) == "m_u4"  # a question whose answer is gone
    await backend.branches.delete("ana", "m_r2")  # not shown: nothing moves
    assert await head(backend) == "m_u4"
    await admitted(backend, message(6))
    await backend.branches.delete("ana", "m_u6")
    assert await head(backend) == "m_u4"
    await backend.branches.delete("ana", "m_u1")
    assert await head(backend) is None
    assert await shown(backend) == []


async def test_a_title_goes_with_the_message_that_it_was_made_of(backend: Backend) -> None:
    await conversation(backend, "c_1", "c_2")
    long = "A secret of many words that go on and on beyond what a title is made of"
    await answered(backend, message(1, content=f"  {long}\n", title=f"{long[:30].strip()}…"))
    await answered(backend, message(2, conversation="c_2", content=long, title="Another"))
    await backend.branches.delete("ana", "m_u1")
    await backend.branches.delete("ana", "m_u2")
    found = [await backend.conversations.get("ana", name) for name in ("c_1", "c_2")]
    assert [one.title for one in found if one is not None] == ["", "Another"]
    searched = await backend.conversations.list(
        "ana", cursor=None, limit=9, query="secret", archived=False
    )
    assert searched.items == ()
    await answered(backend, message(3, title="New"))
    again = await backend.conversations.get("ana", "c_1")
    assert again is not None
    assert again.title == "New"


async def test_a_models_title_goes_with_either_side_of_the_first_exchange(
    backend: Backend,
) -> None:
    """It was made of both; of what was said later it holds nothing."""
    await conversation(backend)
    await answered(backend, message(1))
    await answered(backend, message(2, parent_id="m_r1"))
    assert await backend.tasks.want("ana", "c_1", "title", "", room_tokens=12)
    task = await backend.tasks.claim(lease_s=9)
    assert task is not None
    assert await backend.tasks.finish(task, Title("Made"))
    for gone, title in (("m_r2", "Made"), ("m_u2", "Made"), ("m_r1", "")):
        await backend.branches.delete("ana", gone)
        found = await backend.conversations.get("ana", "c_1")
        assert found is not None
        assert (found.title, found.titled_by) == (title, "model" if title else "words")


async def test_a_title_of_first_words_goes_with_whichever_message_has_them(
    backend: Backend,
) -> None:
    await conversation(backend)
    await answered(backend, message(1, content="One", title="One"))
    await backend.branches.delete("ana", "m_u1")
    await answered(backend, message(2, content="Two", title=""))
    await answered(backend, message(3, parent_id="m_r2", content="Three", title="Three"))
    await backend.branches.delete("ana", "m_r3")
    found = await backend.conversations.get("ana", "c_1")
    assert found is not None
    assert found.title == "Three"
    await backend.branches.delete("ana", "m_u3")
    found = await backend.conversations.get("ana", "c_1")
    assert found is not None
    assert found.title == ""


async def test_a_running_reply_is_deleted_and_no_late_writer_brings_it_back(
    backend: Backend,
) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    await admitted(backend, message(2, parent_id="m_r1"))
    held = await claimed(backend)
    await note(backend, held)
    await backend.log.fence("m_r2", held.epoch, 1)
    await backend.log.append("m_r2", held.epoch, 1, entries(1, 2))
    await admitted(backend, regenerate(3, "m_u1"))
    assert await backend.branches.running("ana", "m_u2") == ("m_r2",)
    assert await backend.branches.running("ana", "m_u1") == ("m_r2", "m_r3")
    assert await backend.branches.running("ben", "m_u1") is None
    assert await backend.branches.delete("ben", "m_u2") is None
    assert await backend.branches.delete("ana", "m_u2") == ("m_r2",)
    assert not await note(backend, held)
    assert not await backend.turns.finish(held.held, completed())
    assert await backend.turns.seize("ana", "m_r2", "stopped") is None
    assert await backend.queue.renew([held.held], lease_s=2) == {held.held}
    assert await backend.log.append("m_r2", held.epoch, 1, entries(3, 3)) is Append.STALE
    assert await backend.log.reseed("m_r2", held.epoch, 1, entries(1, 3)) is Append.STALE
    assert await backend.log.fence("m_r2", 9, 1) is None
    assert await backend.log.read("m_r2", 0) is None
    assert await backend.messages.rate("ana", "m_r2", "up", "") is None
    below = message(4, parent_id="m_r2")
    assert await backend.turns.admit(below, PLENTY) == Missing()
    assert await backend.turns.admit(regenerate(5, "m_u2"), PLENTY) == Missing()
    assert await head(backend) == "m_r3"
    # What ran may have cost its reservation; what nobody had claimed is still there.
    assert await used_and_held(backend, "ana") == (150 + 300, 300, ("m_r3",))
    assert (await claimed(backend)).reply_id == "m_r3"


async def test_a_late_retry_brings_no_deleted_message_back(backend: Backend) -> None:
    """Whoever did not hear the answer asks again under the same key, perhaps much later."""
    await fork(backend)
    await conversation(backend, "c_2")
    await backend.branches.delete("ana", "m_u4")
    await backend.branches.delete("ana", "m_r3")
    before = await shown(backend, "m_u1")
    for late in (
        message(4, parent_id="m_r2", reply_id="m_r9", user_message_id="m_u9"),
        message(5, parent_id="m_r2", reply_id="m_r9", user_message_id="m_u9"),
        regenerate(3, "m_u2", reply_id="m_r9"),
    ):
        assert await backend.turns.admit(late, PLENTY) == Missing()
    assert await shown(backend, "m_u1") == before
    # Elsewhere the key is as good as any; and what is left can be asked for again.
    await admitted(backend, message(4, conversation="c_2", reply_id="m_r9", user_message_id="m_u9"))
    assert isinstance(await backend.turns.admit(message(2, parent_id="m_r1"), PLENTY), Repeated)
    # A conversation takes its marks along.
    await backend.conversations.delete("ana", "c_1")
    await conversation(backend)
    await admitted(backend, message(5))


async def test_a_turn_that_nobody_had_claimed_is_deleted_for_nothing(backend: Backend) -> None:
    await conversation(backend)
    await admitted(backend, message(1))
    assert await backend.branches.delete("ana", "m_r1") == ("m_r1",)
    assert await used_and_held(backend, "ana") == (0, 0, ())
    assert await shown(backend) == ["m_u1"]
    await admitted(backend, regenerate(2, "m_u1"))
    assert await shown(backend) == ["m_u1", "m_r2"]


async def test_nothing_is_left_to_bury_after_a_message(backend: Backend) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    await backend.branches.delete("ana", "m_u1")
    assert await backend.conversations.bury_deleted() == 0
