"""What a search finds: the same in every store, whatever its database calls equal."""

from __future__ import annotations

import pytest

from tertulia.core import search
from tertulia.core.search import Snippet
from tertulia.core.types import Conversation, Failure, Page, Status
from tests.conformance.world import (
    Backend,
    ManualClock,
    admitted,
    answered,
    claimed,
    completed,
    conversation,
    message,
    regenerate,
)

pytestmark = pytest.mark.anyio

SAID = {
    "c_1": "Kubernetes schedules pods; 100% of them. C:\\temp_dir",
    "c_2": "Die Straße im Fluß, İstanbul und ΣΊΣΥΦΟΣ",
    "c_3": "数据库里的词典 🙂 한국어 ひらがな",
    "c_4": "To be, or not to be: that is the \x00question\x1a of 1.5\u00a0GB",
}


async def found(
    backend: Backend,
    query: str,
    *,
    owner: str = "ana",
    limit: int = 50,
    cursor: str | None = None,
    archived: bool = False,
) -> Page[Conversation]:
    return await backend.conversations.list(
        owner, cursor=cursor, limit=limit, query=query, archived=archived
    )


async def ids(backend: Backend, query: str, *, archived: bool = False) -> list[str]:
    return sorted(one.id for one in (await found(backend, query, archived=archived)).items)


async def library(backend: Backend) -> None:
    """One text in each conversation, a title in a fifth, and another owner's."""
    await conversation(backend, *SAID, "c_5")
    for n, (name, text) in enumerate(SAID.items()):
        await answered(backend, message(n, conversation=name, content="-", title="-"), text=text)
    await backend.conversations.change("ana", "c_5", {"title": "Über Kubernetes & Tee"})
    await conversation(backend, "c_b", owner="ben")
    await answered(backend, message(9, owner="ben", conversation="c_b"), text=SAID["c_1"])


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("kubernetes", ["c_1", "c_5"]),
        ("UBERNETE", ["c_1", "c_5"]),
        ("über k", ["c_5"]),
        ("ÜBER", ["c_5"]),
        ("uber k", []),
        ("100%", ["c_1"]),
        ("1%0", []),
        ("temp_dir", ["c_1"]),
        ("temp?dir", []),
        ("c:\\t", ["c_1"]),
        ("strasse", ["c_2"]),
        ("FLUSS", ["c_2"]),
        ("s", ["c_1", "c_2", "c_4", "c_5"]),
        ("σίσυφος", ["c_2"]),
        ("İstanbul", ["c_2"]),
        ("istanbul", []),
        ("stanbul", ["c_2"]),
        ("数据", ["c_3"]),
        ("据", ["c_3"]),
        ("词典 🙂", ["c_3"]),
        ("🙂", ["c_3"]),
        ("국어", ["c_3"]),
        ("ひら", ["c_3"]),
        ("据库数", []),
        ("to be", ["c_4"]),
        ("or not to be: that", ["c_4"]),
        ("be  or", []),
        ("1.5\u00a0gb", ["c_4"]),
        ('"kubernetes"', []),
        ("kubernetes OR strasse", []),
        ("kube*", []),
        ("(", []),
        ("NEAR(a b)", []),
        ("-pods", []),
        ("'; DROP TABLE messages; --", []),
        ("x" * 10_000, []),
    ],
)
async def test_a_search_is_letter_by_letter_in_any_case(
    backend: Backend, query: str, wanted: list[str]
) -> None:
    await library(backend)
    assert await ids(backend, query) == wanted


async def test_what_is_longer_than_a_word_may_be_is_found_by_its_beginning(
    backend: Backend,
) -> None:
    await conversation(backend)
    await answered(backend, message(1), text="y" * search.QUERY_CHARS)
    assert await ids(backend, "y" * search.QUERY_CHARS + "zzz") == ["c_1"]


async def test_a_message_is_shown_where_it_holds_the_word(backend: Backend) -> None:
    await conversation(backend, "c_1", "c_2")
    await answered(backend, message(1, title="-"), text="An older Straße")
    await answered(backend, message(2, parent_id="m_r1"), text=f"{'x' * 60}\nIn der STRASSE hier")
    await answered(backend, message(3, conversation="c_2", title="Straße"), text="Straße")
    by_id = {one.id: one.snippet for one in (await found(backend, "strasse")).items}
    assert by_id == {"c_1": Snippet("x" * 32 + " In der ", "STRASSE", " hier"), "c_2": None}
    listed = await found(backend, "")
    assert [one.snippet for one in listed.items] == [None, None]
    one = await backend.conversations.get("ana", "c_1")
    assert one is not None
    assert one.snippet is None


async def test_what_a_search_finds_stands_in_the_order_of_the_list(
    backend: Backend, clock: ManualClock
) -> None:
    await conversation(backend, *(f"c_{n}" for n in range(6)))
    for n in range(6):
        await answered(backend, message(n, conversation=f"c_{n}"), text="needle")
        clock.pass_(1)
    await backend.conversations.change("ana", "c_2", {"pinned": True})
    await backend.conversations.change("ana", "c_3", {"archived": True})
    read: list[str] = []
    cursor = None
    for _ in range(9):
        page = await found(backend, "needle", limit=2, cursor=cursor)
        read += [one.id for one in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert read == ["c_2", "c_5", "c_4", "c_1", "c_0"]
    assert await ids(backend, "needle", archived=True) == ["c_3"]


@pytest.mark.parametrize("query", ["needle", "ne"])
async def test_a_search_looks_through_a_part_and_leads_on(
    backend: Backend, clock: ManualClock, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "LOOKED_THROUGH", 3)
    monkeypatch.setattr(search, "LOOKED_THROUGH_WHOLLY", 3)
    await conversation(backend, *(f"c_{n}" for n in range(9)))
    for n in (0, 6, 7):
        await backend.conversations.change("ana", f"c_{n}", {"title": "A needle"})
    pages = []
    cursor = None
    for _ in range(9):
        page = await found(backend, query, limit=1, cursor=cursor)
        pages.append([one.id for one in page.items])
        cursor = page.next_cursor
        if cursor is None:
            break
    assert [name for page in pages for name in page] == ["c_7", "c_6", "c_0"]
    assert [] in pages  # three in a row hold nothing
    assert cursor is None


async def test_a_search_finds_what_is_there_now(backend: Backend) -> None:
    await conversation(backend)
    failed = completed(
        text="halfway", status=Status.FAILED, finish=None, failure=Failure("x", "y", retryable=True)
    )
    await admitted(backend, message(1, content="question", title="title"))
    assert await ids(backend, "question") == await ids(backend, "title") == ["c_1"]
    assert await backend.turns.finish((await claimed(backend)).held, failed)
    assert await ids(backend, "halfway") == ["c_1"]
    await admitted(backend, message(1))
    assert await ids(backend, "halfway") == []
    assert await backend.turns.finish((await claimed(backend)).held, completed(text="the end"))
    assert await ids(backend, "the end") == ["c_1"]
    await backend.conversations.change("ana", "c_1", {"title": "another"})
    assert await ids(backend, "title") == []
    assert await ids(backend, "ANOTHER") == ["c_1"]
    await answered(backend, regenerate(2, "m_u1"), text="once more")
    await backend.branches.delete("ana", "m_r1")
    assert await ids(backend, "the end") == []
    assert await ids(backend, "once more") == await ids(backend, "question") == ["c_1"]
    await backend.conversations.delete("ana", "c_1")
    assert await ids(backend, "once more") == []
