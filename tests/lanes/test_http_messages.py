"""Asking, following, resuming, stopping and branching over HTTP, with the real lanes behind it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from itertools import islice
from typing import Any
from unittest.mock import patch

import httpx2
import pytest

from tertulia.core.types import GenerateRequest, Said, Status, Turn
from tertulia.gateway.streams import Seat
from tertulia.ports import ReplicaRefused
from tests.lanes.gateway_rig import (
    ANSWER,
    FIRST,
    FORBIDDEN,
    PLANS,
    Rig,
    ScriptedReplicas,
    ask,
    ask_later,
    events,
    new_conversation,
    rig,
    text_of,
    until,
)

pytestmark = pytest.mark.anyio

WHOLE = "".join(ANSWER)
# `ask_later` makes the key of the question.
KEY_STOP = "/v1/messages/Why?/stop".replace("?", "%3F")


async def all_messages(client: httpx2.AsyncClient, conversation: str) -> list[dict[str, Any]]:
    page = await client.get(f"/v1/conversations/{conversation}/messages")
    assert page.status_code == 200, page.text
    items: list[dict[str, Any]] = page.json()["items"]
    return items


async def running(here: Rig, client: httpx2.AsyncClient) -> tuple[str, dict[str, Any]]:
    """A reply of which the first sentence is logged and the rest is held."""
    conversation = await new_conversation(client)
    posted = (await ask_later(client, conversation)).json()
    log = here.backend.log

    async def logged() -> bool:
        view = await log.read(posted["messageId"], 1)
        return view is not None and bool(view.entries)

    await until(logged)
    return conversation, posted


async def test_a_streamed_reply_has_meta_text_and_done_with_gapless_ids() -> None:
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        streamed = await ask(client, conversation)
        user, reply = await all_messages(client, conversation)
    seen = events(streamed.text)
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert streamed.headers["x-accel-buffering"] == "no"
    assert streamed.text.startswith("retry: 1000\n\n")
    assert [number for number, _, _ in seen] == list(range(1, len(seen) + 1))
    assert (seen[0][1], seen[-1][1]) == ("meta", "done")
    assert text_of(streamed.text) == WHOLE == reply["content"]
    assert seen[0][2]["messageId"] == reply["id"]
    used = seen[-1][2]["usage"]
    assert (used["cached"], used["output"]) == (3, reply["tokens"])
    assert seen[-1][2]["charged"] == used["input"] - 3 + 0.3 + 4 * reply["tokens"]
    assert (user["content"], reply["parentId"]) == ("Why?", user["id"])
    assert reply["lastEventId"] == len(seen)
    assert (reply["status"], reply["finish"], reply["error"]) == ("completed", "stop", None)


async def test_a_202_says_where_to_follow() -> None:
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        posted = await ask_later(client, conversation)
        body = posted.json()
        followed = await client.get(body["streamUrl"])
    assert posted.status_code == 202
    assert posted.headers["location"] == body["streamUrl"]
    assert set(body) == {"messageId", "userMessageId", "conversationId", "status", "streamUrl"}
    assert body["conversationId"] == conversation
    assert text_of(followed.text) == WHOLE


async def test_the_same_key_gives_the_same_reply_however_it_is_written() -> None:
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        first = await ask(client, conversation, key="m_1")
        again = await client.post(
            f"/v1/conversations/{conversation}/messages",
            content=b'{ "model":"auto",\n "content" : "Why\\u003f" }',
            headers={
                "Content-Type": "application/json",
                "Accept": "text/event-stream",
                "Idempotency-Key": '"m_1"',
            },
        )
        assert len(here.replicas.asked) == 1
    assert again.text == first.text


@pytest.mark.parametrize(
    "other",
    [{"content": "How?"}, {"model": "small"}, {"parentId": None}],
    ids=["content", "model", "parent"],
)
async def test_the_same_key_with_another_body_is_refused(other: dict[str, Any]) -> None:
    """T6."""
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        await ask(client, conversation, key="m_1")
        body = {"content": "Why?", **other}
        content = body.pop("content")
        again = await ask(client, conversation, str(content), key="m_1", **body)
        elsewhere = await ask(client, await new_conversation(client), key="m_1")
        assert len(here.replicas.asked) == 1
    assert (again.status_code, again.json()["code"]) == (422, "idempotency_key_reuse")
    assert elsewhere.status_code == 422


async def test_two_users_with_one_key_get_two_replies() -> None:
    """T5."""
    async with rig() as here:
        ana, ben = await here.user("ana"), await here.user("ben")
        one = await ask(ana, await new_conversation(ana), "Of Ana", key="m_1")
        two = await ask(ben, await new_conversation(ben), "Of Ben", key="m_1")
    assert one.status_code == two.status_code == 200
    assert events(one.text)[0][2]["messageId"] != events(two.text)[0][2]["messageId"]


async def test_racing_posts_of_one_key_make_one_reply() -> None:
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        posted = await asyncio.gather(
            *(ask_later(client, conversation, key="m_1") for _ in range(40))
        )
        assert len(here.backend.store.turns) == 1
    assert {answer.status_code for answer in posted} == {202}
    assert len({answer.json()["messageId"] for answer in posted}) == 1


async def test_a_message_without_parent_goes_after_the_newest_and_null_makes_a_root() -> None:
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        await ask(client, conversation, "One")
        await ask(client, conversation, "Two")
        await ask(client, conversation, "Other", parentId=None)
        found = await all_messages(client, conversation)
    by_text = {item["content"]: item for item in found if item["role"] == "user"}
    replies = [item["id"] for item in found if item["role"] == "assistant"]
    assert by_text["One"]["parentId"] is None
    assert by_text["Two"]["parentId"] == replies[0]
    assert by_text["Other"]["parentId"] is None
    assert [item["seq"] for item in found] == [1, 2, 3, 4, 5, 6]


async def test_regenerating_makes_a_sibling_and_keeps_the_first() -> None:
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        first = events((await ask(client, conversation)).text)[0][2]
        again = await client.post(
            f"/v1/messages/{first['messageId']}/regenerate",
            json={"model": "small"},
            headers={"Idempotency-Key": "again", "Accept": "text/event-stream"},
        )
        found = await all_messages(client, conversation)
    second = events(again.text)[0][2]
    assert second["userMessageId"] == first["userMessageId"]
    assert second["messageId"] != first["messageId"]
    assert (second["requested"], second["reason"]) == ("small", "picked")
    assert [item["role"] for item in found] == ["user", "assistant", "assistant"]
    assert {item["parentId"] for item in found[1:]} == {first["userMessageId"]}


class Refusing(ScriptedReplicas):
    """Takes nothing for a while."""

    is_well = False

    async def generate(
        self, replica: str, request: GenerateRequest, **more: object
    ) -> AsyncGenerator[Said, None]:
        if not self.is_well:
            raise ReplicaRefused(400, "broken", "nothing is taken here")
        async for said in super().generate(replica, request, **more):
            yield said


async def test_a_reply_that_failed_begins_anew_under_its_key_until_the_chat_has_gone_on() -> None:
    replicas = Refusing()
    async with rig(replicas=replicas) as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        assert events((await ask(client, conversation, "One")).text)[-1][1] == "fail"
        replicas.is_well = True
        assert text_of((await ask(client, conversation, "One")).text) == WHOLE
        replicas.is_well = False
        failed = events((await ask(client, conversation, "Two")).text)
        replicas.is_well = True
        await ask(client, conversation, "Three")
        asked = len(replicas.asked)
        assert events((await ask(client, conversation, "Two")).text) == failed
        assert (await ask_later(client, conversation, "Two")).json()["status"] == "failed"
        assert len(replicas.asked) == asked
        # Another reply beside it is the way on.
        reply_id = failed[0][2]["messageId"]
        again = await client.post(
            f"/v1/messages/{reply_id}/regenerate",
            headers={"Idempotency-Key": "again", "Accept": "text/event-stream"},
        )
    assert text_of(again.text) == WHOLE


async def test_a_users_message_can_not_be_regenerated() -> None:
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        asked = events((await ask(client, conversation)).text)[0][2]["userMessageId"]
        answer = await client.post(
            f"/v1/messages/{asked}/regenerate", headers={"Idempotency-Key": "again"}
        )
    assert answer.status_code == 404


async def test_a_resume_gets_exactly_what_it_missed() -> None:
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        whole = await ask(client, conversation)
        reply = events(whole.text)[0][2]["messageId"]
        url = f"/v1/messages/{reply}/stream"
        count = len(events(whole.text))
        for seen in range(count):
            by_header = await client.get(url, headers={"Last-Event-ID": str(seen)})
            by_query = await client.get(f"{url}?lastEventId={seen}")
            assert by_header.text == by_query.text
            assert events(by_header.text) == events(whole.text)[seen:]
        both = await client.get(f"{url}?lastEventId=0", headers={"Last-Event-ID": str(count)})
        end = await client.get(f"{url}?lastEventId={count}")
    assert both.status_code == end.status_code == 204
    assert end.content == b""


EVENT_IDS = ["-1", "+5", "1_000", "٣", "9223372036854775808", "9" * 10_000, "1\r\nX: y", " ", "x"]


@pytest.mark.parametrize("given", EVENT_IDS, ids=[ascii(given)[:20] for given in EVENT_IDS])
async def test_an_event_id_that_is_none_is_refused(given: str) -> None:
    """T4."""
    async with rig() as here:
        client = await here.user("ana")
        reply = (await ask_later(client, await new_conversation(client))).json()
        answer = await client.get(reply["streamUrl"], params={"lastEventId": given})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_event_id")
    assert answer.json()["field"] == "Last-Event-ID"


async def test_an_event_id_header_that_is_none_is_refused() -> None:
    async with rig() as here:
        client = await here.user("ana")
        reply = (await ask_later(client, await new_conversation(client))).json()
        for given in (b"\xd9\xa3", b"-1", b"1e3", b"0x1"):
            answer = await client.get(reply["streamUrl"], headers={b"Last-Event-ID": given})
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_event_id")


async def test_an_event_id_beyond_the_head_is_a_conflict_and_never_waited_for() -> None:
    async with rig(replicas=ScriptedReplicas(before_hold=3)) as here:
        client = await here.user("ana")
        _, posted = await running(here, client)
        answer = await client.get(f"{posted['streamUrl']}?lastEventId=99")
    assert (answer.status_code, answer.json()["code"]) == (409, "event_id_ahead")
    assert answer.json()["lastEventId"] == 2


async def test_a_running_reply_shows_its_text_and_last_id_from_one_view() -> None:
    """S-01: a reload shows everything from the first token and goes on without a hole."""
    async with rig(replicas=ScriptedReplicas(before_hold=3)) as here:
        client = await here.user("ana")
        conversation, posted = await running(here, client)
        _, reply = await all_messages(client, conversation)
        one = (await client.get(f"/v1/conversations/{conversation}")).json()
        me = (await client.get("/v1/me")).json()
        here.replicas.hold.set()
        rest = await client.get(f"{posted['streamUrl']}?lastEventId={reply['lastEventId']}")
    assert (reply["status"], reply["content"]) == ("running", FIRST)
    assert reply["content"] + text_of(rest.text) == WHOLE
    assert one["activeMessageId"] == one["headMessageId"] == posted["messageId"]
    assert me["running"] == [posted["messageId"]]


async def test_a_stop_keeps_the_text_and_says_so_twice() -> None:
    async with rig(replicas=ScriptedReplicas(before_hold=3)) as here:
        client = await here.user("ana")
        _, posted = await running(here, client)
        url = f"/v1/messages/{posted['messageId']}/stop"
        stopped = await client.post(url)
        assert here.replicas.aborted
        again = await client.post(url)
        stream = await client.get(posted["streamUrl"])
    assert stopped.status_code == again.status_code == 200
    assert stopped.json() == again.json()
    assert (stopped.json()["status"], stopped.json()["finish"]) == ("stopped", "stopped")
    assert stopped.json()["content"] == text_of(stream.text) == FIRST
    assert stopped.json()["lastEventId"] == events(stream.text)[-1][0]


async def test_the_key_of_a_turn_stops_its_reply_for_its_owner_alone() -> None:
    """A client that has not heard of its reply yet has no other name for it."""
    async with rig(replicas=ScriptedReplicas(before_hold=3)) as here:
        client, other = await here.user("ana"), await here.user("ben")
        _, posted = await running(here, client)
        foreign, unknown = await other.post(KEY_STOP), await client.post("/v1/messages/no-key/stop")
        stopped = await client.post(KEY_STOP)
        again = await client.post(f"/v1/messages/{posted['messageId']}/stop")
    assert (foreign.status_code, foreign.content) == (404, unknown.content)
    assert stopped.status_code == 200
    assert stopped.json() == again.json()
    assert (stopped.json()["id"], stopped.json()["status"]) == (posted["messageId"], "stopped")


async def test_stopping_a_finished_reply_changes_nothing() -> None:
    async with rig() as here:
        client = await here.user("ana")
        reply = events((await ask(client, await new_conversation(client))).text)[0][2]["messageId"]
        answer = await client.post(f"/v1/messages/{reply}/stop")
    assert (answer.status_code, answer.json()["status"]) == (200, "completed")


async def test_a_rating_touches_nothing_else() -> None:
    """S-23."""
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        reply = events((await ask(client, conversation, "One")).text)[0][2]["messageId"]
        await ask(client, conversation, "Two")
        before = (await client.get(f"/v1/conversations/{conversation}")).json()
        url = f"/v1/messages/{reply}/feedback"
        up = await client.post(url, json={"rating": "up", "reason": "clear"})
        bad = await client.post(url, json={"rating": "great"})
        absent = await client.post(url, json={})
        after = (await client.get(f"/v1/conversations/{conversation}")).json()
        none = await client.post(url, json={"rating": None})
    assert (up.status_code, up.json()["feedback"]) == (200, "up")
    assert (bad.status_code, absent.status_code) == (400, 400)
    assert none.json()["feedback"] is None
    assert before == after


async def test_a_refused_input_is_a_refusal_and_costs_nothing() -> None:
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        streamed = await ask(client, conversation, f"Say {FORBIDDEN}", key="k")
        _, reply = await all_messages(client, conversation)
        assert not here.replicas.asked
    kinds = [kind for _, kind, _ in events(streamed.text)]
    assert kinds == ["meta", "refusal", "done"]
    assert events(streamed.text)[-1][2] == {
        "finish": "refused",
        "usage": {"input": 0, "cached": 0, "output": 0},
        "charged": 0,
    }
    assert reply["status"] == "refused"


@pytest.mark.parametrize("n_cached", [-1_000_000, 10**12])
async def test_a_replicas_odd_counts_are_clamped_and_counted_and_credit_nobody(
    n_cached: int,
) -> None:
    async with rig(replicas=ScriptedReplicas(n_cached=n_cached)) as here:
        client = await here.user("ana")
        streamed = await ask(client, await new_conversation(client))
    done = events(streamed.text)[-1][2]
    assert done["usage"]["cached"] == (0 if n_cached < 0 else done["usage"]["input"])
    assert done["charged"] > 4 * done["usage"]["output"] > 0
    assert b"tertulia_worker_usage_clamped_total 1.0" in here.worker.desk.figures.page()


async def test_a_flagged_sentence_leaves_by_no_path() -> None:
    async with rig(replicas=ScriptedReplicas(("Fine. ", f"Now {FORBIDDEN}. ", "More."))) as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        streamed = await ask(client, conversation)
        listed = await client.get(f"/v1/conversations/{conversation}/messages")
        resumed = await client.get(f"/v1/messages/{listed.json()['items'][1]['id']}/stream")
    for seen in (streamed.text, listed.text, resumed.text):
        assert FORBIDDEN not in seen
        assert "More." not in seen
    assert text_of(streamed.text) == "Fine. "


async def test_a_reader_that_leaves_does_not_end_the_reply() -> None:
    async with rig(replicas=ScriptedReplicas(before_hold=3)) as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        async with client.stream(
            "POST",
            f"/v1/conversations/{conversation}/messages",
            json={"content": "Why?"},
            headers={"Accept": "text/event-stream", "Idempotency-Key": "k"},
        ) as response:
            async for line in response.aiter_lines():
                if "delta" in line:
                    break
        here.replicas.hold.set()
        await until(lambda: all(t.status.is_final for t in here.backend.store.turns.values()))
        await until(lambda: not len(here.desk.streams))
        _, reply = await all_messages(client, conversation)
    assert (reply["status"], reply["content"]) == (Status.COMPLETED, WHOLE)


async def test_model_text_can_not_forge_an_event() -> None:
    """T30."""
    said = "\n\nevent: done\ndata: {}\n\nid: 99\r\rdata: \u2028\u0085\ufeff"
    async with rig(replicas=ScriptedReplicas((said,))) as here:
        client = await here.user("ana")
        streamed = await ask(client, await new_conversation(client))
    assert text_of(streamed.text) == said
    assert [kind for _, kind, _ in events(streamed.text)] == ["meta", "delta", "done"]
    assert "\r" not in streamed.text


async def test_odd_but_whole_text_comes_back_as_it_was() -> None:
    """T12: bidi marks and non-characters are text; the page isolates them."""
    content = "\u202eabc\u202c \ufffe 👩‍👩‍👧 é e\u0301 \u0085"
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        await ask(client, conversation, content, key="k")
        user, _ = await all_messages(client, conversation)
    assert user["content"] == content


async def test_the_page_of_messages_is_read_backwards() -> None:
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        for number in range(3):
            await ask(client, conversation, f"Ask-{number}")
        url = f"/v1/conversations/{conversation}/messages"
        last = (await client.get(f"{url}?limit=4")).json()
        first = (await client.get(f"{url}?limit=4&before={last['nextBefore']}")).json()
    assert [item["seq"] for item in last["items"]] == [3, 4, 5, 6]
    assert [item["seq"] for item in first["items"]] == [1, 2]
    assert first["nextBefore"] is None


async def test_streams_are_counted_and_bounded_per_user() -> None:
    """T36: a resume beyond the bound is told to come back, a new post is refused."""
    async with rig(replicas=ScriptedReplicas(before_hold=3)) as here:
        ana = await here.user("ana")
        conversation, posted = await running(here, ana)
        owner = here.backend.store.turns[posted["messageId"]].owner
        for n in range(PLANS["free"].open_streams):
            assert await here.desk.streams.take(Seat(owner, f"elsewhere-{n}"), limit=100)
        resumed = await ana.get(posted["streamUrl"])
        refused = await ask(ana, conversation, "Other", parentId=None)
        assert len(here.backend.store.turns) == 1
    assert (resumed.status_code, resumed.text) == (200, "retry: 5000\n\n")
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")


async def test_racing_streams_of_one_key_never_pass_the_bound() -> None:
    """T36, I12: who has room waits for the others who have, and then all get their turn."""
    limit = PLANS["free"].open_streams
    together = asyncio.Barrier(limit)
    async with rig(replicas=ScriptedReplicas(before_hold=3)) as here:
        find_by_key = here.backend.turns.find_by_key

        async def late(owner: str, key: str) -> Turn | None:
            await together.wait()
            return await find_by_key(owner, key)

        ana = await here.user("ana")
        conversation = await new_conversation(ana)
        with patch.object(here.backend.turns, "find_by_key", late):
            posts = [asyncio.create_task(ask(ana, conversation)) for _ in range(3 * limit)]
            refused = [
                await post for post in islice(asyncio.as_completed(posts, timeout=10), 2 * limit)
            ]
            opened = await until(lambda: len(here.desk.streams) >= limit and len(here.desk.streams))
        here.replicas.hold.set()
        await asyncio.wait(posts)
    assert opened == limit
    assert {answer.status_code for answer in refused} == {429}


async def test_the_shapes_are_those_of_the_contract() -> None:
    async with rig() as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        await ask(client, conversation)
        listed = (await client.get("/v1/conversations")).json()
        items = await all_messages(client, conversation)
    assert set(listed["items"][0]) == set(
        json.loads('["id","title","pinned","archived","createdAt","updatedAt","activeMessageId"]')
    )
    assert set(items[0]) == {
        "id", "parentId", "seq", "role", "content", "tokens", "model", "requested", "reason",
        "status", "finish", "notices", "feedback", "createdAt", "error", "lastEventId", "version",
    }  # fmt: skip
