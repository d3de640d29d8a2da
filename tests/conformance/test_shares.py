"""Promises of the `Shares` port: a link shows what was settled when it was made, while it lasts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tertulia.backends.memory import MemoryBackend
from tertulia.backends.sqlite import SqliteBackend
from tertulia.core.shares import NewShare, NothingToShare, Share, SharedPage, TooManyShares
from tertulia.core.types import HEAD, Head, Status
from tests.conformance.postgres import run_sql
from tests.conformance.world import (
    START,
    Backend,
    ManualClock,
    admitted,
    answered,
    claimed,
    completed,
    conversation,
    message,
    note,
    person,
    regenerate,
)

pytestmark = pytest.mark.anyio

OWNER = "u_ana"


def new_share(n: int, leaf: str | Head = HEAD, **more: Any) -> NewShare:
    """Ana's link `n` to her first conversation; its secret has the hash `hash-{n}`."""
    named = {"owner": OWNER, "conversation_id": "c_1", **more}
    return NewShare(id=f"s_{n}", leaf=leaf, token_hash=f"hash-{n}", **named)


async def shared(backend: Backend, n: int, leaf: str | Head = HEAD, **more: Any) -> Share:
    made = await backend.shares.add(new_share(n, leaf, **more), limit=100)
    assert isinstance(made, Share), made
    return made


async def shown(backend: Backend, n: int, *, after: int = 0, limit: int = 50) -> SharedPage | None:
    return await backend.shares.page(f"hash-{n}", after=after, limit=limit)


async def texts(backend: Backend, n: int) -> list[str] | None:
    page = await shown(backend, n)
    return None if page is None else [one.content for one in page.messages]


@pytest.fixture
async def ana(backend: Backend) -> Backend:
    """A store with Ana, Ben and a conversation of hers with two answers."""
    for name in ("ana", "ben"):
        await backend.accounts.add(person(name))
    await conversation(backend, owner=OWNER)
    await answered(backend, message(1, owner=OWNER))
    await answered(backend, message(2, owner=OWNER, parent_id="m_r1"), text="Second")
    return backend


async def test_a_link_shows_the_branch_from_its_root_and_not_whose_it_is(ana: Backend) -> None:
    made = await shared(ana, 1)
    assert (made.title, made.created_at, made.snapshot.shown_messages) == ("Title 1", START, 4)
    page = await shown(ana, 1)
    assert page is not None
    assert (page.title, page.created_at, page.next_after) == ("Title 1", START, None)
    assert [(m.place, m.role, m.content, m.model, m.status) for m in page.messages] == [
        (1, "user", "Question 1", None, Status.COMPLETED),
        (2, "assistant", "Answer", "small-1", Status.COMPLETED),
        (3, "user", "Question 2", None, Status.COMPLETED),
        (4, "assistant", "Second", "small-1", Status.COMPLETED),
    ]


async def test_what_comes_later_is_not_in_it(ana: Backend) -> None:
    await shared(ana, 1)
    before = await shown(ana, 1)
    await answered(ana, message(3, owner=OWNER, parent_id="m_r2"))
    await answered(ana, regenerate(4, "m_u2", owner=OWNER))
    await ana.messages.rate(OWNER, "m_r2", "up", "")
    changes = {"title": "Another", "pinned": True, "archived": True}
    await ana.conversations.change(OWNER, "c_1", changes)
    assert await shown(ana, 1) == before


async def test_a_link_ends_at_the_leaf_that_was_named(ana: Backend) -> None:
    await answered(ana, regenerate(3, "m_u1", owner=OWNER), text="Other")
    await shared(ana, 1, "m_r2")
    await shared(ana, 2, "m_r3")
    await shared(ana, 3, "m_u1")
    assert await texts(ana, 1) == ["Question 1", "Answer", "Question 2", "Second"]
    assert await texts(ana, 2) == ["Question 1", "Other"]
    assert await texts(ana, 3) == ["Question 1"]


async def test_a_reply_in_progress_is_never_in_it(ana: Backend) -> None:
    await admitted(ana, message(3, owner=OWNER, parent_id="m_r2"))
    held = await claimed(ana)
    await shared(ana, 1)
    before = await texts(ana, 1)
    await note(ana, held)
    await ana.turns.finish(held.held, completed(text="Third"))
    assert await texts(ana, 1) == before == [
        "Question 1", "Answer", "Question 2", "Second", "Question 3",
    ]  # fmt: skip


async def test_a_failed_reply_that_is_run_again_does_not_appear(ana: Backend) -> None:
    await admitted(ana, message(3, owner=OWNER, parent_id="m_r2"))
    held = await claimed(ana)
    await note(ana, held)
    await ana.turns.finish(
        held.held, completed(status=Status.FAILED, finish=None, text="Half", ids=())
    )
    await shared(ana, 1)
    before = await texts(ana, 1)
    await answered(ana, message(3, owner=OWNER, parent_id="m_r2"), text="Whole")
    assert await texts(ana, 1) == before
    assert before is not None
    assert before[-1] == "Question 3"


async def test_pages_follow_each_other(ana: Backend) -> None:
    await shared(ana, 1)
    first = await shown(ana, 1, limit=3)
    assert first is not None
    assert ([one.place for one in first.messages], first.next_after) == ([1, 2, 3], 3)
    second = await shown(ana, 1, after=3, limit=3)
    assert second is not None
    assert ([one.place for one in second.messages], second.next_after) == ([4], None)
    beyond = await shown(ana, 1, after=9)
    assert beyond is not None
    assert (beyond.title, beyond.messages) == ("Title 1", ())


async def test_only_an_owner_shares_and_only_what_is_there(ana: Backend) -> None:
    await conversation(ana, "c_2", owner=OWNER)
    for new in (
        new_share(1, owner="u_ben"),
        new_share(1, conversation_id="c_9"),
        new_share(1, "m_r9"),
        new_share(1, "m_r1", conversation_id="c_2"),
    ):
        assert await ana.shares.add(new, limit=100) is None
    empty = new_share(1, conversation_id="c_2")
    assert await ana.shares.add(empty, limit=100) == NothingToShare()
    assert await ana.shares.list(OWNER, None) == ()


async def test_an_owner_has_no_more_links_than_the_limit(ana: Backend) -> None:
    answers = await asyncio.gather(
        *(ana.shares.add(new_share(n), limit=3) for n in range(8)),
    )
    assert sum(isinstance(answer, Share) for answer in answers) == 3
    assert answers.count(TooManyShares(3)) == 5
    await conversation(ana, "c_b", owner="u_ben")
    await answered(ana, message(9, owner="u_ben", conversation="c_b"))
    await shared(ana, 9, owner="u_ben", conversation_id="c_b")


async def test_the_newest_is_listed_first_and_only_to_its_owner(
    ana: Backend, clock: ManualClock
) -> None:
    await conversation(ana, "c_2", owner=OWNER)
    await answered(ana, message(5, owner=OWNER, conversation="c_2"))
    made = [await shared(ana, 1)]
    clock.pass_(1)
    made.append(await shared(ana, 2, conversation_id="c_2"))
    clock.pass_(1)
    made.append(await shared(ana, 3, "m_u1"))
    assert await ana.shares.list(OWNER, None) == (made[2], made[1], made[0])
    assert await ana.shares.list(OWNER, "c_1") == (made[2], made[0])
    assert await ana.shares.list("u_ben", None) == ()
    assert await ana.shares.list("u_ben", "c_1") is None
    assert await ana.shares.list(OWNER, "c_9") is None
    await ana.shares.revoke(OWNER, "s_2")
    assert await ana.shares.list(OWNER, "c_2") == ()


async def test_what_is_revoked_shows_nothing_and_the_others_stay(ana: Backend) -> None:
    await shared(ana, 1)
    await shared(ana, 2)
    assert not await ana.shares.revoke("u_ben", "s_1")
    assert not await ana.shares.revoke(OWNER, "s_9")
    assert await ana.shares.revoke(OWNER, "s_1")
    assert not await ana.shares.revoke(OWNER, "s_1")
    assert await shown(ana, 1) is None
    assert await shown(ana, 2) is not None
    assert await shown(ana, 9) is None


async def test_a_disabled_owners_links_show_nothing(ana: Backend) -> None:
    await shared(ana, 1)
    await ana.accounts.change(OWNER, {"disabled": True})
    assert await shown(ana, 1) is None
    await ana.accounts.change(OWNER, {"disabled": False})
    assert await shown(ana, 1) is not None


async def test_links_go_with_their_conversation(ana: Backend) -> None:
    await conversation(ana, "c_2", owner=OWNER)
    await answered(ana, message(5, owner=OWNER, conversation="c_2"))
    await shared(ana, 1)
    await shared(ana, 2, conversation_id="c_2")
    await ana.conversations.delete(OWNER, None)
    assert await shown(ana, 1) is not None
    await ana.conversations.delete(OWNER, "c_1")
    assert await shown(ana, 1) is None
    assert [one.id for one in await ana.shares.list(OWNER, None) or ()] == ["s_2"]


async def test_no_link_outlives_a_deletion_at_the_same_moment(ana: Backend) -> None:
    made, *_ = await asyncio.gather(
        ana.shares.add(new_share(1), limit=100),
        ana.conversations.delete(OWNER, "c_1"),
        ana.shares.add(new_share(2), limit=100),
    )
    assert made is None or isinstance(made, Share)
    assert await ana.shares.list(OWNER, None) == ()
    assert await shown(ana, 1) is None
    assert await shown(ana, 2) is None


@pytest.mark.parametrize("message_id", ["m_u1", "m_r1", "m_u2", "m_r2"])
async def test_a_link_of_whose_branch_a_message_is_gone_shows_nothing(
    ana: Backend, request: pytest.FixtureRequest, message_id: str
) -> None:
    """Whoever deletes it, and whether it was the root, in the middle or the leaf."""
    await answered(ana, regenerate(3, "m_u2", owner=OWNER), text="Other")
    await shared(ana, 1, "m_r2")
    await shared(ana, 2, "m_r3")
    await _lose(ana, request, message_id)
    assert await shown(ana, 1) is None
    assert (await shown(ana, 2) is None) == (message_id != "m_r2")


async def _lose(backend: Backend, request: pytest.FixtureRequest, message_id: str) -> None:
    """Takes one message out of the store, behind the ports."""
    if isinstance(backend, MemoryBackend):
        del backend.store.messages[OWNER, message_id]
    elif isinstance(backend, SqliteBackend):
        gone = "DELETE FROM messages WHERE id = ?"
        await backend._writer.put(lambda database: database.execute(gone, (message_id,)).rowcount)
    else:
        url = request.getfixturevalue("postgres_server").url
        await run_sql(url, f"DELETE FROM messages WHERE id = '{message_id}' RETURNING id")


async def test_a_link_goes_with_a_message_of_its_branch(ana: Backend) -> None:
    await shared(ana, 1)
    await shared(ana, 2, "m_r1")
    assert await ana.branches.delete(OWNER, "m_u2") == ()
    assert await texts(ana, 1) is None
    left = await ana.shares.list(OWNER, None)
    assert left is not None
    assert [one.id for one in left] == ["s_2"]
    assert await texts(ana, 2) == ["Question 1", "Answer"]
