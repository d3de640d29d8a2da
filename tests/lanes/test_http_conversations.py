"""Conversations over HTTP: making, listing, changing and deleting them."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from tests.lanes.gateway_rig import (
    ScriptedReplicas,
    ask,
    ask_later,
    events,
    new_conversation,
    rig,
    until,
)

pytestmark = pytest.mark.anyio


async def titles(client: httpx2.AsyncClient, query: str = "") -> list[str]:
    answer = await client.get(f"/v1/conversations{query}")
    assert answer.status_code == 200, answer.text
    return [item["title"] for item in answer.json()["items"]]


async def named(client: httpx2.AsyncClient, title: str) -> str:
    made = await client.post("/v1/conversations", json={"title": title})
    name: str = made.json()["id"]
    return name


async def test_a_conversation_is_made_once_per_key() -> None:
    """S-19: Enter pressed three times on a slow link makes one."""
    async with rig() as here:
        client = await here.user("ana")
        made = await asyncio.gather(
            *(
                client.post("/v1/conversations", headers={"Idempotency-Key": "c_1"})
                for _ in range(3)
            )
        )
        other = await client.post("/v1/conversations", json={})
    assert {answer.status_code for answer in made} == {201}
    assert len({answer.json()["id"] for answer in made}) == 1
    assert made[0].headers["location"] == f"/v1/conversations/{made[0].json()['id']}"
    assert other.json()["id"] != made[0].json()["id"]


async def test_the_list_is_paged_newest_first() -> None:
    async with rig() as here:
        client = await here.user("ana")
        for number in range(5):
            await named(client, f"n{number}")
        first = (await client.get("/v1/conversations?limit=3")).json()
        rest = (await client.get(f"/v1/conversations?cursor={first['nextCursor']}")).json()
    assert [item["title"] for item in first["items"]] == ["n4", "n3", "n2"]
    assert [item["title"] for item in rest["items"]] == ["n1", "n0"]
    assert rest["nextCursor"] is None


async def test_changes_touch_only_what_they_name_and_never_the_order() -> None:
    """S-28."""
    async with rig() as here:
        client = await here.user("ana")
        one, _ = await named(client, "one"), await named(client, "two")
        before = (await client.get(f"/v1/conversations/{one}")).json()
        changed = (await client.patch(f"/v1/conversations/{one}", json={"title": "uno"})).json()
        order = await titles(client)
        await client.patch(f"/v1/conversations/{one}", json={"pinned": True})
        pinned = await titles(client)
        await client.patch(f"/v1/conversations/{one}", json={"archived": True})
        kept, archived = await titles(client), await titles(client, "?archived=true")
    assert {**before, "title": "uno"} == {**changed, "headMessageId": None}
    assert order == ["two", "uno"]
    assert pinned == ["uno", "two"]
    assert (kept, archived) == (["two"], ["uno"])


BAD_CHANGES: list[dict[str, Any]] = [
    {"title": None},
    {"title": 7},
    {"title": "x" * 201},
    {"pinned": "yes"},
    {"archived": 1},
    {"model": "large"},
    {"owner": "u_1"},
    {"head_message_id": "m_1"},
    {"title": "a\x00"},
]


@pytest.mark.parametrize("change", BAD_CHANGES, ids=str)
async def test_a_change_that_can_not_be_is_refused_by_name(change: dict[str, Any]) -> None:
    async with rig() as here:
        client = await here.user("ana")
        answer = await client.patch(f"/v1/conversations/{await named(client, 'x')}", json=change)
        assert await titles(client) == ["x"]
    assert (answer.status_code, answer.json()["field"]) == (400, next(iter(change)))


async def test_a_search_finds_titles_and_texts_literally() -> None:
    async with rig() as here:
        client = await here.user("ana")
        await named(client, "100% sure")
        await named(client, "1000 things")
        await ask(client, await new_conversation(client), "Über_Maß", key="k")
        by_title, by_text = await titles(client, "?q=100%25"), await titles(client, "?q=über_m")
        nothing = await titles(client, "?q=_ber")
    assert by_title == ["100% sure"]
    assert by_text == ["Über_Maß"]
    assert nothing == []


async def test_what_was_found_in_a_message_is_shown() -> None:
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        await ask(client, conversation, "Wie breit ist die Straße?", key="k")
        found = (await client.get("/v1/conversations?q=MEMORY")).json()["items"]
        by_title = (await client.get("/v1/conversations?q=strasse")).json()["items"]
    assert found[0]["snippet"] == {
        "before": "e reads every weight for each token. So ",
        "match": "memory",
        "after": " is the limit.",
    }
    assert "snippet" not in by_title[0]


@pytest.mark.parametrize("query", ["a%00", "a%0Ab", "%1f", "%C2%85", "x" * 201])
async def test_a_word_that_nobody_can_look_for_is_refused_by_name(query: str) -> None:
    async with rig() as here:
        client = await here.user("ana")
        answer = await client.get(f"/v1/conversations?q={query}")
    assert (answer.status_code, answer.json()["field"]) == (400, "q")


async def test_deleting_stops_what_runs_and_leaves_no_copy() -> None:
    async with rig(replicas=ScriptedReplicas(before_hold=3)) as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        posted = (await ask_later(client, conversation)).json()
        await until(lambda: here.replicas.asked)
        following = asyncio.create_task(client.get(posted["streamUrl"]))
        await until(lambda: len(here.desk.streams))
        deleted = await client.delete(f"/v1/conversations/{conversation}")
        assert here.replicas.aborted
        seen = await asyncio.wait_for(following, 10)
        again = await client.delete(f"/v1/conversations/{conversation}")
        stream = await client.get(posted["streamUrl"])
        me = (await client.get("/v1/me")).json()
        store = here.backend.store
        assert not any((store.conversations, store.messages, store.turns, store.open))
        assert await here.backend.log.read(posted["messageId"], 0) is None
    assert (deleted.status_code, again.status_code, stream.status_code) == (204, 404, 404)
    assert me["running"] == []
    assert all(kind in ("meta", "delta", "done") for _, kind, _ in events(seen.text))
