"""Promises of the `Messages` port: pages, branches, texts and ratings."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tertulia.core.types import HEAD, Branch, BranchMessage, PromptMessage, Status
from tests.conformance.world import (
    Backend,
    admitted,
    answered,
    completed,
    conversation,
    message,
    regenerate,
)

pytestmark = pytest.mark.anyio


async def test_a_page_is_the_newest_and_leads_to_the_older(backend: Backend) -> None:
    await conversation(backend)
    await _chain(backend, 3)
    page = await backend.messages.page("ana", "c_1", before=None, limit=4)
    assert page is not None
    assert [found.id for found in page.items] == ["m_u2", "m_r2", "m_u3", "m_r3"]
    assert page.next_cursor == "m_u2"
    await admitted(backend, message(9, parent_id="m_r3"))  # moves nothing that comes before
    rest = await backend.messages.page("ana", "c_1", before=page.next_cursor, limit=4)
    assert rest is not None
    assert [found.id for found in rest.items] == ["m_u1", "m_r1"]
    assert [found.seq for found in rest.items] == [1, 2]
    assert rest.next_cursor is None


async def test_a_page_that_holds_the_first_leads_nowhere(backend: Backend) -> None:
    await conversation(backend)
    empty = await backend.messages.page("ana", "c_1", before=None, limit=4)
    assert empty is not None
    assert (empty.items, empty.next_cursor) == ((), None)
    await _chain(backend, 2)
    page = await backend.messages.page("ana", "c_1", before=None, limit=4)
    assert page is not None
    assert page.next_cursor is None


async def test_what_is_not_the_owners_has_no_page(backend: Backend) -> None:
    await conversation(backend, "c_1", "c_2")
    await answered(backend, message(1))
    await answered(backend, message(2, conversation="c_2"))
    assert await backend.messages.page("ben", "c_1", before=None, limit=4) is None
    assert await backend.messages.page("ana", "c_3", before=None, limit=4) is None
    assert await backend.messages.page("ana", "c_1", before="m_u2", limit=4) is None
    assert await backend.messages.page("ana", "c_1", before="m_unknown", limit=4) is None


async def test_tokens_come_with_one_message_and_not_with_a_page(backend: Backend) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    page = await backend.messages.page("ana", "c_1", before=None, limit=4)
    found = await backend.messages.find("ana", "m_r1")
    assert page is not None
    assert found is not None
    assert (page.items[1].ids, found.ids) == (None, (1, 70_000, 3))
    assert await backend.messages.find("ben", "m_r1") is None
    assert await backend.messages.find("ana", "m_unknown") is None


async def test_a_branch_is_the_path_from_the_root_to_its_leaf(backend: Backend) -> None:
    await conversation(backend)
    await _chain(backend, 2)
    await answered(backend, regenerate(3, "m_u2"))
    await admitted(backend, message(4, parent_id="m_r3"))
    branch = await _path(backend, "m_r4")
    assert [found.id for found in branch] == ["m_u1", "m_r1", "m_u2", "m_r3", "m_u4", "m_r4"]
    assert branch[0] == BranchMessage("m_u1", "user", Status.COMPLETED, 3, "small")
    assert branch[1] == BranchMessage("m_r1", "assistant", Status.COMPLETED, 3, "small")
    assert branch[5] == BranchMessage("m_r4", "assistant", Status.QUEUED, 0, "")
    older = await _path(backend, "m_r2")
    assert [found.id for found in older] == ["m_u1", "m_r1", "m_u2", "m_r2"]


async def test_a_branch_says_what_its_conversation_keeps_to(backend: Backend) -> None:
    await conversation(backend)
    assert await backend.messages.branch("ana", "c_1", HEAD) == Branch("v1", None, None, ())
    await answered(backend, message(1))
    to_head = await backend.messages.branch("ana", "c_1", HEAD)
    assert to_head == await backend.messages.branch("ana", "c_1", "m_r1")
    assert to_head is not None
    assert (to_head.prompt_version, to_head.model, to_head.leaf) == ("v1", "small-1", "m_r1")
    assert [found.id for found in to_head.messages] == ["m_u1", "m_r1"]


async def test_a_branch_brings_the_text_of_a_users_leaf_alone(backend: Backend) -> None:
    await conversation(backend, "c_1", "c_2")
    tricky = "né\x00🙂\x1a"
    await answered(backend, message(1, content=tricky))
    said = {}
    for leaf in ("m_u1", "m_r1", HEAD, "m_unknown", None):
        branch = await backend.messages.branch("ana", "c_1", leaf)
        assert branch is not None
        said[leaf] = branch.said
    assert said == {"m_u1": tricky, "m_r1": None, HEAD: None, "m_unknown": None, None: None}
    elsewhere = await backend.messages.branch("ana", "c_2", "m_u1")
    assert elsewhere is not None
    assert elsewhere.said is None


async def test_no_leaf_and_a_foreign_leaf_give_no_path(backend: Backend) -> None:
    await conversation(backend, "c_1", "c_2")
    await answered(backend, message(1))
    messages = backend.messages
    assert await messages.branch("ana", "c_1", None) == Branch("v1", "small-1", None, ())
    assert await messages.branch("ana", "c_1", "m_x") == Branch("v1", "small-1", "m_x", ())
    assert await messages.branch("ana", "c_2", "m_r1") == Branch("v1", None, "m_r1", ())


async def test_nobody_elses_conversation_has_a_branch(backend: Backend) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    for owner, name in (("ben", "c_1"), ("ana", "c_3")):
        for leaf in ("m_r1", HEAD, None):
            assert await backend.messages.branch(owner, name, leaf) is None


async def test_texts_come_in_the_asked_order_with_a_replys_tokens(backend: Backend) -> None:
    await conversation(backend)
    await _chain(backend, 2)
    texts = await backend.messages.texts("ana", ["m_r2", "m_u1", "m_unknown", "m_r1"])
    assert texts == (
        PromptMessage("assistant", "Answer 2", (1, 70_000, 3), "small"),
        PromptMessage("user", "Question 1"),
        PromptMessage("assistant", "Answer 1", (1, 70_000, 3), "small"),
    )
    assert await backend.messages.texts("ben", ["m_r2"]) == ()
    assert await backend.messages.texts("ana", []) == ()


async def test_a_rating_moves_nothing_else(backend: Backend) -> None:
    await conversation(backend)
    await _chain(backend, 2)
    before = await backend.conversations.get("ana", "c_1")
    rated = await backend.messages.rate("ana", "m_r1", "up", "clear")
    assert rated is not None
    assert (rated.feedback, rated.content) == ("up", "Answer 1")
    assert await backend.messages.find("ana", "m_r1") == rated
    assert await backend.conversations.get("ana", "c_1") == before
    cleared = await backend.messages.rate("ana", "m_r1", None, "")
    assert cleared is not None
    assert cleared.feedback is None


async def test_only_the_owners_replies_can_be_rated(backend: Backend) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    assert await backend.messages.rate("ben", "m_r1", "up", "") is None
    assert await backend.messages.rate("ana", "m_u1", "up", "") is None
    assert await backend.messages.rate("ana", "m_unknown", "up", "") is None


async def test_a_rating_survives_the_end_of_its_reply(backend: Backend) -> None:
    await conversation(backend)
    await admitted(backend, message(1))
    held = await backend.queue.claim(lease_s=2)
    assert held is not None
    await backend.messages.rate("ana", "m_r1", "down", "slow")
    assert await backend.turns.finish(held.held, completed())
    found = await backend.messages.find("ana", "m_r1")
    assert found is not None
    assert (found.feedback, found.content) == ("down", "Answer")


@pytest.mark.parametrize("text", ["", "a\x00b", "line\nline", "🙂é́", "x" * 300_000, "'\"\\%_"])
async def test_any_text_comes_back_as_it_was_said(backend: Backend, text: str) -> None:
    await conversation(backend)
    await answered(backend, message(1, content=text), text=text)
    texts = await backend.messages.texts("ana", ["m_u1", "m_r1"])
    assert [found.content for found in texts] == [text, text]
    turn = await backend.turns.find("ana", "m_r1")
    assert turn is not None
    assert turn.text == text


async def _path(backend: Backend, leaf: str) -> Sequence[BranchMessage]:
    branch = await backend.messages.branch("ana", "c_1", leaf)
    assert branch is not None
    assert branch.leaf == leaf
    return branch.messages


async def _chain(backend: Backend, length: int) -> None:
    """A conversation of `length` finished turns, one below the other."""
    parent = None
    for n in range(1, length + 1):
        await answered(backend, message(n, parent_id=parent), text=f"Answer {n}")
        parent = f"m_r{n}"
