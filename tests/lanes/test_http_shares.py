"""Links to conversations: read by whoever has one, ended by their owner, guessed by nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx2
import pytest

from tertulia.core.shares import NewShare, Share
from tertulia.core.types import HEAD
from tertulia.gateway.auth import secret_hash
from tertulia.gateway.page import BuiltPage
from tertulia.gateway.shares import _SHARES
from tests.lanes.gateway_rig import (
    ANSWER,
    RULES,
    ScriptedReplicas,
    ask,
    ask_later,
    new_conversation,
    rig,
    until,
)

pytestmark = pytest.mark.anyio

WHOLE = "".join(ANSWER)


async def talked(client: httpx2.AsyncClient, text: str = "Why?") -> str:
    """A conversation with one answer."""
    conversation = await new_conversation(client)
    await ask(client, conversation, text, key=f"key-{text}-{conversation}")
    return conversation


async def share(client: httpx2.AsyncClient, conversation: str, **body: Any) -> dict[str, Any]:
    made = await client.post(f"/v1/conversations/{conversation}/shares", json=body)
    assert made.status_code == 201, made.text
    shown: dict[str, Any] = made.json()
    return shown


async def read(
    client: httpx2.AsyncClient, made: dict[str, Any], query: str = ""
) -> httpx2.Response:
    return await client.get(f"/v1/shares/{made['token']}{query}")


async def contents(client: httpx2.AsyncClient, made: dict[str, Any]) -> list[str]:
    return [message["content"] for message in (await read(client, made)).json()["messages"]]


def bytes_of(answer: httpx2.Response) -> tuple[int, bytes, dict[str, str]]:
    headers = {name: value for name, value in answer.headers.items() if name != "date"}
    return answer.status_code, answer.content, headers


async def test_whoever_has_the_link_reads_the_branch_and_not_whose_it_is() -> None:
    async with rig() as here:
        ana, reader = await here.user("ana"), here.client()
        conversation = await talked(ana)
        made = await share(ana, conversation)
        answer = await read(reader, made)
    assert made["url"] == f"/s/{made['token']}"
    assert len(made["token"]) >= 43
    shown = answer.json()
    assert {**shown, "createdAt": ""} == {
        "title": "Why?",
        "createdAt": "",
        "messages": [
            {"place": 1, "role": "user", "content": "Why?", "model": None, "status": "completed"},
            {
                "place": 2,
                "role": "assistant",
                "content": WHOLE,
                "model": "lab/small-1b",
                "status": "completed",
            },
        ],
        "nextAfter": None,
    }
    for never in ("ana", "u_", conversation, "m_"):
        assert never not in answer.text.replace("lab/small-1b", "")
    assert answer.headers["cache-control"] == "private, no-store"
    assert answer.headers["x-robots-tag"] == "noindex"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_the_token_is_shown_once_and_stored_as_a_hash() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        conversation = await talked(ana)
        made = await share(ana, conversation)
        listed = (await ana.get("/v1/shares")).json()
        of_one = (await ana.get(f"/v1/conversations/{conversation}/shares")).json()
        stored = repr(here.backend.store.shares)
    assert listed == of_one
    expected = {name: made[name] for name in ("id", "conversationId", "title", "createdAt")}
    assert listed["items"] == [{**expected, "messages": 2}]
    assert made["token"] not in stored


async def test_turns_after_the_link_do_not_appear() -> None:
    async with rig() as here:
        ana, reader = await here.user("ana"), here.client()
        conversation = await talked(ana)
        made = await share(ana, conversation)
        before = (await read(reader, made)).content
        await ask(ana, conversation, "And then?")
        changes = {"title": "Private", "pinned": True, "archived": True}
        await ana.patch(f"/v1/conversations/{conversation}", json=changes)
        assert (await read(reader, made)).content == before


async def test_a_reply_in_progress_is_left_out_and_no_link_streams() -> None:
    async with rig(replicas=ScriptedReplicas(before_hold=3)) as here:
        ana, reader = await here.user("ana"), here.client()
        conversation = await new_conversation(ana)
        posted = (await ask_later(ana, conversation)).json()
        await until(lambda: here.replicas.asked)
        made = await share(ana, conversation)
        during = await contents(reader, made)
        here.replicas.hold.set()
        await ana.get(posted["streamUrl"])
        after = await contents(reader, made)
    assert during == after == ["Why?"]


async def test_a_branch_is_shared_up_to_the_leaf_that_is_named() -> None:
    async with rig() as here:
        ana, reader = await here.user("ana"), here.client()
        conversation = await talked(ana)
        page = (await ana.get(f"/v1/conversations/{conversation}/messages")).json()
        question = page["items"][0]["id"]
        await ask(ana, conversation, "And then?")
        made = await share(ana, conversation, leafId=question)
        assert await contents(reader, made) == ["Why?"]


async def test_pages_follow_each_other() -> None:
    async with rig() as here:
        ana, reader = await here.user("ana"), here.client()
        conversation = await talked(ana)
        await ask(ana, conversation, "And then?")
        made = await share(ana, conversation)
        first = (await read(reader, made, "?limit=3")).json()
        rest = (await read(reader, made, f"?limit=3&after={first['nextAfter']}")).json()
        wrong = [await read(reader, made, query) for query in ("?limit=0", "?after=-1", "?after=x")]
    places = [message["place"] for page in (first, rest) for message in page["messages"]]
    assert (places, rest["nextAfter"]) == ([1, 2, 3, 4], None)
    assert {answer.status_code for answer in wrong} == {400}


async def test_a_revoked_a_deleted_and_a_guessed_link_are_the_same_as_none() -> None:
    async with rig() as here:
        ana, reader = await here.user("ana"), here.client()
        kept, gone = await talked(ana, "Kept?"), await talked(ana, "Gone?")
        revoked, deleted = await share(ana, kept), await share(ana, gone)
        assert (await ana.delete(f"/v1/shares/{revoked['id']}")).status_code == 204
        assert (await ana.delete(f"/v1/conversations/{gone}")).status_code == 204
        tried = [revoked["token"], deleted["token"], "A" * 43, "x", "%00", "a" * 3_000, "é" * 43]
        answers = [bytes_of(await reader.get(f"/v1/shares/{token}")) for token in tried]
        again = await ana.delete(f"/v1/shares/{revoked['id']}")
        listed = (await ana.get("/v1/shares")).json()
    assert answers[0][0] == 404
    assert all(answer == answers[0] for answer in answers)
    assert again.status_code == 404
    assert listed == {"items": []}


async def test_a_disabled_owners_links_show_nothing() -> None:
    async with rig() as here:
        ana, reader = await here.user("ana"), here.client()
        made = await share(ana, await talked(ana))
        me = (await ana.get("/v1/me")).json()
        await here.backend.accounts.change(me["id"], {"disabled": True})
        assert (await read(reader, made)).status_code == 404


async def test_where_sharing_is_closed_no_link_is_made_or_read_and_one_can_be_revoked() -> None:
    async with rig(rules=replace(RULES, shares_open=False)) as here:
        ana, reader = await here.user("ana"), here.client()
        conversation = await talked(ana)
        owner = (await ana.get("/v1/me")).json()["id"]
        made = NewShare(owner, "s_1", conversation, HEAD, secret_hash("token"))
        assert isinstance(await here.backend.shares.add(made, limit=9), Share)
        refused = await ana.post(f"/v1/conversations/{conversation}/shares")
        closed = bytes_of(await reader.get("/v1/shares/token"))
        wrong = bytes_of(await reader.get("/v1/shares/none"))
        listed = (await ana.get("/v1/shares")).json()["items"]
        gone = await ana.delete("/v1/shares/s_1")
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert closed == wrong
    assert closed[0] == 404
    assert [one["id"] for one in listed] == ["s_1"]
    assert gone.status_code == 204


@pytest.mark.parametrize(
    ("body", "field"), [({"leafId": ""}, "leafId"), ({"leafId": 3}, "leafId"), ({"a": 1}, "a")]
)
async def test_a_link_that_can_not_be_is_refused_by_name(body: dict[str, Any], field: str) -> None:
    async with rig() as here:
        ana = await here.user("ana")
        answer = await ana.post(f"/v1/conversations/{await talked(ana)}/shares", json=body)
    assert (answer.status_code, answer.json()["field"]) == (400, field)


async def test_an_empty_conversation_is_nothing_to_share() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        answer = await ana.post(f"/v1/conversations/{await new_conversation(ana)}/shares")
    assert (answer.status_code, answer.json()["field"]) == (400, "leafId")


async def test_nobody_has_more_links_than_a_list_can_hold() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        conversation = await talked(ana)
        store = here.backend.store
        made = await share(ana, conversation)
        one = next(iter(store.shares.values()))
        for n in range(_SHARES - 1):
            store.shares[f"hash-{n}"] = replace(one, id=f"s_{n}")
        full = await ana.post(f"/v1/conversations/{conversation}/shares")
        await ana.delete(f"/v1/shares/{made['id']}")
        await share(ana, conversation)
    assert (full.status_code, full.json()["code"]) == (409, "too_many_shares")
    assert full.json()["limit"] == _SHARES


async def test_another_site_can_not_make_a_link_in_somebodys_name() -> None:
    async with rig() as here:
        browser = await here.browser("ana")
        conversation = await talked(browser)
        path = f"/v1/conversations/{conversation}/shares"
        foreign = await browser.post(path, headers={"Origin": "https://evil.example"})
        own = await browser.post(path)
    assert (foreign.status_code, foreign.json()["code"]) == (403, "csrf")
    assert own.status_code == 201


async def test_wrong_links_are_counted_by_address_and_right_ones_are_not() -> None:
    async with rig() as here:
        ana, reader = await here.user("ana"), here.client()
        made = await share(ana, await talked(ana))
        for _ in range(310):
            assert (await read(reader, made)).status_code == 200
        wrong = [await reader.get(f"/v1/shares/wrong-{n}") for n in range(301)]
        right = await read(reader, made)
    assert {answer.status_code for answer in wrong[:300]} == {404}
    assert (wrong[300].status_code, wrong[300].json()["code"]) == (429, "too_many_requests")
    assert int(wrong[300].headers["retry-after"]) <= 300
    assert right.status_code == 429  # or a guess could be told from a reader


async def test_the_view_of_a_link_is_for_no_search_engine_and_no_cache() -> None:
    async with rig(page=BuiltPage()) as here:
        shown = await here.client().get("/s/some-token")
        usual = await here.client().get("/c/c_1")
        etag = {"If-None-Match": shown.headers["etag"]}
        again = await here.client().get("/s/some-token", headers=etag)
    assert shown.content == usual.content
    for answer in (shown, again):
        assert answer.headers["cache-control"] == "private, no-store"
        assert answer.headers["x-robots-tag"] == "noindex"
        assert answer.headers["referrer-policy"] == "no-referrer"
    assert "x-robots-tag" not in usual.headers
    assert shown.headers["content-security-policy"] == usual.headers["content-security-policy"]
