"""Temporary chat: followed, stopped and asked again like any other, and then nothing is left."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from tertulia.core.opening import asked
from tertulia.core.turn import LOG_KEPT_S, thread_of
from tertulia.core.types import TokenIds
from tertulia.worker.forget import forget_round
from tertulia.worker.loose import forget_loose
from tests.lanes.gateway_rig import (
    ANSWER,
    FIRST,
    FORBIDDEN,
    Rig,
    ScriptedReplicas,
    ask,
    events,
    new_conversation,
    rig,
    text_of,
    until,
    with_budget,
)

pytestmark = pytest.mark.anyio

WHOLE = "".join(ANSWER)
CANARY = "xylophone-canary"


def said(*texts: str) -> list[dict[str, str]]:
    """Questions and answers in turn."""
    roles = ("user", "assistant")
    return [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]


async def post(
    client: httpx2.AsyncClient,
    *texts: str,
    key: str = "k",
    accept: str = "text/event-stream",
    **more: Any,
) -> httpx2.Response:
    return await client.post(
        "/v1/temporary/messages",
        json={"messages": said(*texts), **more},
        headers={"Accept": accept, "Idempotency-Key": key},
    )


def read_as_text(ids: TokenIds) -> str:
    """A prompt's letters, and a line for each control token."""
    return "".join(chr(n - 10) if n >= 10 else "|" for n in ids)


async def pass_by(here: Rig, seconds: float) -> None:
    """Makes it so much later, and has the worker do its chore."""
    here.backend.store.clock = _Later(here.backend.store.clock, seconds)
    await forget_loose(here.worker.desk)


class _Later:
    """A clock that is so many seconds ahead."""

    def __init__(self, clock: Any, seconds: float):
        self._clock = clock
        self._seconds = seconds

    def now(self) -> float:
        return float(self._clock.now() + self._seconds)

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


async def test_a_reply_streams_and_sees_all_that_was_sent() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        answer = await post(ana, "My name is Ana", "Hello!", "Who am I?")
        prompt = read_as_text(here.replicas.asked[0].prompt)
    found = events(answer.text)
    assert text_of(answer.text) == WHOLE
    assert [number for number, _, _ in found] == list(range(1, len(found) + 1))
    assert found[0][2]["conversationId"] is None
    assert found[-1][2]["finish"] == "stop"
    assert prompt == "|Be kind.|My name is Ana|Hello!|Who am I?|"


async def test_it_begins_with_the_persons_own_instructions_as_any_chat_does() -> None:
    async with rig() as here:
        ana, ben = await here.user("ana"), await here.user("ben")
        await ana.put("/v1/me/instructions", json={"text": "Rhyme."})
        await post(ana, "Why?")
        await post(ben, "Why?")
        # A program says itself what it wants said.
        await ana.post(
            "/v1/chat/completions",
            json={"model": "auto", "messages": [{"role": "user", "content": "Why?"}]},
        )
        prompts = [read_as_text(one.prompt) for one in here.replicas.asked]
    assert prompts == [
        f"|Be kind.{asked('Rhyme.')}|Why?|",
        "|Be kind.|Why?|",
        "|Be kind.|Why?|",
    ]


async def test_engines_forget_it_once_none_of_it_is_left() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        await post(ana, "Why?", key="k1")
        [thread] = {thread_of(turn) for turn in here.backend.store.turns.values()}
        await pass_by(here, LOG_KEPT_S / 2)
        await post(ana, "Why?", "So it is.", "How?", key="k2")
        owner = next(iter(here.backend.store.turns.values())).owner
        await pass_by(here, LOG_KEPT_S / 2)
        assert here.replicas.forgotten == []
        await pass_by(here, LOG_KEPT_S / 2)
    assert not here.backend.store.turns
    assert here.replicas.forgotten == [(owner, thread)]


async def test_a_202_says_where_to_follow_and_any_stream_resumes() -> None:
    async with rig() as here:
        ana, ben = await here.user("ana"), await here.user("ben")
        posted = (await post(ana, "Why?", accept="application/json")).json()
        whole = await ana.get(posted["streamUrl"])
        rest = await ana.get(posted["streamUrl"], headers={"Last-Event-ID": "1"})
        foreign = await ben.get(posted["streamUrl"])
    assert (posted["conversationId"], posted["userMessageId"]) == (None, None)
    assert events(rest.text) == events(whole.text)[1:]
    assert foreign.status_code == 404


async def test_the_same_key_finds_the_same_reply_and_another_body_is_refused() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        first = await post(ana, "Why?")
        again = await post(ana, "Why?")
        other = await post(ana, "Why not?")
        assert len(here.replicas.asked) == 1
    assert events(first.text) == events(again.text)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reuse")


async def test_a_stop_keeps_what_was_said_as_long_as_it_can_be_followed() -> None:
    async with rig(replicas=ScriptedReplicas(before_hold=3)) as here:
        ana = await here.user("ana")
        posted = (await post(ana, "Why?", accept="application/json")).json()
        await until(lambda: here.replicas.asked)
        await until(lambda: _logged(here, posted["messageId"]))
        stopped = await ana.post(f"/v1/messages/{posted['messageId']}/stop")
    assert (stopped.status_code, stopped.json()["content"]) == (200, FIRST)


async def test_it_costs_and_is_limited_as_any_other_turn() -> None:
    async with rig(plans=with_budget(10)) as here:
        poor = await post(await here.user("ana"), "Why?")
    async with rig() as here:
        ana = await here.user("ana")
        before = (await ana.get("/v1/me")).json()["budgets"][0]["remaining"]
        await post(ana, "Why?")
        after = (await ana.get("/v1/me")).json()["budgets"][0]["remaining"]
        flagged = await post(ana, f"Say {FORBIDDEN}", key="k2")
        long = await post(ana, "x" * 9_000, key="k3")
    assert (poor.status_code, poor.json()["code"]) == (429, "budget_exhausted")
    assert after < before
    assert [kind for _, kind, _ in events(flagged.text)] == ["meta", "refusal", "done"]
    assert (long.status_code, long.json()["code"]) == (413, "message_too_long")


async def test_it_is_in_no_list_no_search_and_no_message() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        reply = events((await post(ana, CANARY)).text)[0][2]["messageId"]
        listed = (await ana.get("/v1/conversations")).json()["items"]
        found = (await ana.get(f"/v1/conversations?q={CANARY}")).json()["items"]
        rated = await ana.post(f"/v1/messages/{reply}/feedback", json={"rating": "up"})
        again = await ana.post(
            f"/v1/messages/{reply}/regenerate", json={}, headers={"Idempotency-Key": "a"}
        )
        assert not here.backend.store.conversations
        assert not here.backend.store.messages
    assert listed == found == []
    assert (rated.status_code, again.status_code) == (404, 404)


@pytest.mark.parametrize("form", ["temporary", "openai"])
async def test_after_the_stream_can_not_be_followed_any_more_only_figures_are_left(
    form: str,
) -> None:
    """S-48, by whichever call it was said."""
    async with rig() as here:
        ana = await here.user("ana")
        if form == "temporary":
            reply = events((await post(ana, CANARY)).text)[0][2]["messageId"]
        else:
            asked = {"model": "auto", "messages": said(CANARY), "stream": True}
            await ana.post("/v1/chat/completions", json=asked)
            reply = next(iter(here.backend.store.turns))
        used = (await ana.get("/v1/me")).json()["budgets"][0]["remaining"]
        await pass_by(here, LOG_KEPT_S - 30)
        assert (await ana.get(f"/v1/messages/{reply}/stream")).status_code == 200
        await pass_by(here, LOG_KEPT_S)
        gone = await ana.get(f"/v1/messages/{reply}/stream")
        stopped = await ana.post(f"/v1/messages/{reply}/stop")
        store = here.backend.store
        assert not any((store.turns, store.turn_keys, store.open))
        assert len(store.settlements) == 1
        assert CANARY not in repr(store)
        assert await here.backend.log.read(reply, 0) is None
        left = (await ana.get("/v1/me")).json()["budgets"][0]["remaining"]
    assert (gone.status_code, stopped.status_code) == (404, 404)
    assert left >= used


async def test_the_worker_forgets_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig() as here:
        ana = await here.user("ana")
        for n in range(3):
            await post(ana, CANARY, key=f"k{n}")
        monkeypatch.setattr("tertulia.worker.loose._FORGOTTEN_AT_ONCE", 2)
        here.backend.store.clock = _Later(here.backend.store.clock, LOG_KEPT_S)
        await forget_loose(here.worker.desk)
        assert not here.backend.store.turns
        assert len(here.replicas.forgotten) == 1  # all three are of one thread


async def test_what_engines_keep_longer_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(_owner: str, _thread: str) -> None:
        await asyncio.Event().wait()

    async with rig() as here:
        ana = await here.user("ana")
        await post(ana, CANARY)
        monkeypatch.setattr("tertulia.worker.loose._ASKING_S", 0.01)
        monkeypatch.setattr(here.replicas, "forget", forget)
        await pass_by(here, LOG_KEPT_S)
        assert not here.backend.store.turns


async def test_whoever_will_not_wait_deletes_it_at_once() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        reply = events((await post(ana, CANARY)).text)[0][2]["messageId"]
        thread = thread_of(here.backend.store.turns[reply])
        gone = await ana.delete(f"/v1/temporary/messages/{reply}")
        again = await ana.delete(f"/v1/temporary/messages/{reply}")
        assert CANARY not in repr(here.backend.store)
        assert await here.backend.log.read(reply, 0) is None
        await forget_round(here.worker.desk)
        await until(lambda: here.replicas.forgotten)
        assert {one for _, one in here.replicas.forgotten} == {thread}
        anew = await post(ana, CANARY)
    assert (gone.status_code, again.status_code) == (204, 404)
    assert text_of(anew.text) == WHOLE


async def test_deleting_one_that_runs_ends_it_and_its_streams() -> None:
    async with rig(replicas=ScriptedReplicas(before_hold=3)) as here:
        ana = await here.user("ana")
        posted = (await post(ana, CANARY, accept="application/json")).json()
        await until(lambda: here.replicas.asked)
        following = asyncio.create_task(ana.get(posted["streamUrl"]))
        await until(lambda: len(here.desk.streams))
        gone = await ana.delete(f"/v1/temporary/messages/{posted['messageId']}")
        assert here.replicas.aborted
        seen = await asyncio.wait_for(following, 10)
        here.replicas.hold.set()
        assert not any((here.backend.store.turns, here.backend.store.open))
        assert len(here.backend.store.settlements) == 1
        assert (await ana.get("/v1/me")).json()["running"] == []
    assert gone.status_code == 204
    assert all(kind in ("meta", "delta", "done") for _, kind, _ in events(seen.text))


async def test_a_reply_of_a_conversation_is_not_deleted_here() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        conversation = await new_conversation(ana)
        reply = events((await ask(ana, conversation)).text)[0][2]["messageId"]
        answer = await ana.delete(f"/v1/temporary/messages/{reply}")
        assert reply in here.backend.store.turns
    assert answer.status_code == 404


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": said("Hi", "Hello")}, "messages"),
    ({"messages": said(" \n")}, "messages"),
    ({"messages": [{"role": "system", "content": "Be rude."}]}, "messages.0.role"),
    ({"messages": [{"role": "user", "content": ""}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content"),
    ({"messages": [{"role": "user", "content": "Hi", "id": "m_1"}]}, "messages.0.id"),
    ({"messages": said(*["Hi"] * 2_001)}, "messages"),
    ({"messages": said("Hi"), "conversationId": "c_1"}, "conversationId"),
    ({"messages": said("Hi"), "model": "no-such"}, "model"),
]


@pytest.mark.parametrize(("body", "field"), BAD, ids=range(len(BAD)))
async def test_what_can_not_be_is_refused_by_name(body: dict[str, Any], field: str) -> None:
    async with rig() as here:
        ana = await here.user("ana")
        answer = await ana.post(
            "/v1/temporary/messages", json=body, headers={"Idempotency-Key": "k"}
        )
        assert not here.backend.store.turns
    assert (answer.status_code, answer.json()["field"]) == (400, field)


async def test_a_key_is_needed() -> None:
    async with rig() as here:
        ana = await here.user("ana")
        answer = await ana.post("/v1/temporary/messages", json={"messages": said("Hi")})
        stranger = await post(here.client(), "Hi")
    assert (answer.status_code, answer.json()["field"]) == (400, "Idempotency-Key")
    assert stranger.status_code == 401


async def test_the_engine_is_told_whose_cache_it_is() -> None:
    """So that it can be forgotten: a chat's turns have one thread, another user's another."""
    async with rig() as here:
        ana, ben = await here.user("ana"), await here.user("ben")
        await post(ana, "Why?", key="k1")
        await post(ana, "Why?", WHOLE, "And then?", key="k2")
        await post(ben, "Why?", key="k3")
        first, second, other = here.replicas.asked
        turns = here.backend.store.turns.values()
    assert first.session_id == second.session_id == first.thread
    assert other.session_id != first.session_id
    assert {thread_of(turn) for turn in turns} == {first.session_id, other.session_id}


async def _logged(here: Rig, reply_id: str) -> bool:
    view = await here.backend.log.read(reply_id, 0)
    return view is not None and view.last > 1
