"""Branches over HTTP: what is shown, what stays where it is, and deleting a part of a tree."""

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


async def answered(client: httpx2.AsyncClient, conversation: str, words: str, **more: Any) -> Any:
    """Asks and waits for the whole reply; its `meta`."""
    return events((await ask(client, conversation, words, **more)).text)[0][2]


async def again(client: httpx2.AsyncClient, reply: str, *, key: str) -> Any:
    """Another reply to the same question; its `meta`."""
    answer = await client.post(
        f"/v1/messages/{reply}/regenerate",
        json={},
        headers={"Accept": "text/event-stream", "Idempotency-Key": key},
    )
    return events(answer.text)[0][2]


async def branch(client: httpx2.AsyncClient, conversation: str, through: str = "head") -> Any:
    """The messages of a branch."""
    url = f"/v1/conversations/{conversation}/messages?branch={through}"
    answer = await client.get(url)
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


async def show(client: httpx2.AsyncClient, conversation: str, message: str) -> httpx2.Response:
    return await client.put(f"/v1/conversations/{conversation}/head", json={"messageId": message})


def ids(items: Any) -> list[str]:
    return [item["id"] for item in items]


async def test_a_second_turn_on_a_branch_that_is_busy_is_refused_by_its_code() -> None:
    """S-22: never two answers for one parent by accident."""
    async with rig(replicas=ScriptedReplicas(before_hold=2)) as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        posted = (await ask_later(client, conversation, "One")).json()
        answers = [
            await ask_later(client, conversation, "Two", parentId=parent, key=f"k{n}")
            for n, parent in enumerate((posted["messageId"], None))
        ]
        await client.post(f"/v1/messages/{posted['messageId']}/stop")
        later = await ask_later(client, conversation, "Two", key="k9")
    assert [answer.json()["code"] for answer in answers] == ["conversation_busy"] * 2
    assert later.status_code == 202


async def test_a_branch_is_left_and_comes_back_whole() -> None:
    """S-24."""
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        first = (await answered(client, conversation, "One"))["messageId"]
        second = (await again(client, first, key="k"))["messageId"]
        await answered(client, conversation, "Two")
        end = (await answered(client, conversation, "Three"))["messageId"]
        listed = (await client.get("/v1/conversations")).json()
        whole = await branch(client, conversation)
        older = (await show(client, conversation, first)).json()
        short = await branch(client, conversation)
        newer = (await show(client, conversation, second)).json()
        assert await branch(client, conversation) == whole
        assert (await client.get("/v1/conversations")).json() == listed
    assert (older["headMessageId"], newer["headMessageId"]) == (first, end)
    assert ids(short) == [ids(whole)[0], first]
    assert ids(whole)[1] == second
    assert len(whole) == 6
    assert whole[1]["version"] == {"number": 2, "count": 2, "previous": first, "following": None}


async def test_an_edited_question_leaves_what_hangs_below_the_old_one() -> None:
    """S-25, and S-26: the new branch is the one shown before its first word."""
    async with rig(replicas=ScriptedReplicas(before_hold=4)) as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        for words in ("One", "Two", "Three"):
            await answered(client, conversation, words)
        before = await branch(client, conversation)
        here.replicas.before_hold = 0
        edited = await ask_later(client, conversation, "Too", parentId=before[1]["id"], key="k")
        posted = edited.json()
        now = await branch(client, conversation)
        assert ids(now) == [
            *ids(before)[:2],
            posted["userMessageId"],
            posted["messageId"],
        ]
        assert now[3]["content"] == ""
        old = await branch(client, conversation, before[2]["id"])
    assert [(one["id"], one["content"]) for one in old] == [
        (one["id"], one["content"]) for one in before
    ]
    assert old[2]["version"]["following"] == posted["userMessageId"]


async def test_what_one_reads_stays_while_another_device_answers_again() -> None:
    """S-29."""
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        first = (await answered(client, conversation, "One"))["messageId"]
        for key in ("k1", "k2"):
            await again(client, first, key=key)
        read = await branch(client, conversation, first)
        newest = await branch(client, conversation)
    assert ids(read)[1] == first
    assert (read[1]["version"]["number"], read[1]["version"]["count"]) == (1, 3)
    assert newest[1]["version"]["number"] == 3


async def test_a_branch_that_can_not_be_is_refused_by_name() -> None:
    async with rig() as here:
        client = await here.user("ana")
        conversation, other = await new_conversation(client), await new_conversation(client)
        reply = (await answered(client, conversation, "One"))["messageId"]
        url = f"/v1/conversations/{conversation}/head"
        bad = [
            await client.put(url, json=body)
            for body in ({}, {"messageId": None}, {"messageId": ""}, {"messageId": reply, "x": 1})
        ]
        missing = [
            await show(client, conversation, "m_unknown"),
            await show(client, other, reply),
            await client.get(f"/v1/conversations/{other}/messages?branch={reply}"),
            await client.delete("/v1/messages/m_unknown"),
        ]
    assert [answer.json()["field"] for answer in bad] == ["messageId"] * 3 + ["x"]
    assert [answer.status_code for answer in missing] == [404] * 4


async def test_deleting_a_message_while_its_reply_streams_wins() -> None:
    async with rig(replicas=ScriptedReplicas(before_hold=4)) as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        kept = await answered(client, conversation, "One")
        here.replicas.before_hold = 3
        posted = (await ask_later(client, conversation, "Two")).json()
        await until(lambda: len(here.replicas.asked) == 2)
        following = asyncio.create_task(client.get(posted["streamUrl"]))
        await until(lambda: len(here.desk.streams))
        deleted = await client.delete(f"/v1/messages/{posted['userMessageId']}")
        assert here.replicas.aborted
        seen = await asyncio.wait_for(following, 10)
        repeated = await client.delete(f"/v1/messages/{posted['userMessageId']}")
        stream = await client.get(posted["streamUrl"])
        me = (await client.get("/v1/me")).json()
        one = (await client.get(f"/v1/conversations/{conversation}")).json()
        left = await branch(client, conversation)
        assert await here.backend.log.read(posted["messageId"], 0) is None
    assert (deleted.status_code, repeated.status_code, stream.status_code) == (204, 404, 404)
    assert me["running"] == []
    assert (one["activeMessageId"], one["headMessageId"]) == (None, kept["messageId"])
    assert ids(left) == [kept["userMessageId"], kept["messageId"]]
    assert all(kind in ("meta", "delta", "done") for _, kind, _ in events(seen.text))


async def test_a_retry_that_comes_late_brings_no_deleted_message_back() -> None:
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        kept = await answered(client, conversation, "One")
        gone = await answered(client, conversation, "Two", key="k2")
        again = await answered(client, conversation, "Three", key="k3")
        await client.delete(f"/v1/messages/{gone['userMessageId']}")
        late = [
            await ask(client, conversation, "Two", key="k2"),
            await ask(client, conversation, "Three", key="k3", parentId=kept["messageId"]),
        ]
        left = await branch(client, conversation)
        anew = await ask(client, conversation, "Two", key="k4")
    assert again["messageId"] not in ids(left)
    assert [(one.status_code, one.json()["code"]) for one in late] == [(404, "not_found")] * 2
    assert ids(left) == [kept["userMessageId"], kept["messageId"]]
    assert anew.status_code == 200


async def test_a_long_branch_opens_at_its_end_and_is_read_upwards() -> None:
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        for words in ("One", "Two", "Three"):
            await answered(client, conversation, words)
        url = f"/v1/conversations/{conversation}/messages?branch=head&limit=4"
        page = (await client.get(url)).json()
        rest = (await client.get(f"{url}&before={page['nextBefore']}")).json()
        whole = await branch(client, conversation)
    assert ids(rest["items"]) + ids(page["items"]) == ids(whole)
    assert rest["nextBefore"] is None
