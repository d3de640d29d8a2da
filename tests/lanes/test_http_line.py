"""Waiting is visible, refusals say when to come back, and who has gone is not answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from tertulia.backends.clock import SystemClock
from tertulia.backends.memory import MemoryLog, MemoryStore
from tertulia.backends.memory.promises import MemoryPromises
from tertulia.core.types import Finish, Lane, ModelState, Status
from tertulia.core.waiting import LineView
from tertulia.gateway.follow import follow_answer
from tertulia.gateway.line import LineWatch, Place
from tertulia.ports import StoreUnavailable
from tests.conformance.world import ManualClock
from tests.lanes.gateway_rig import (
    PLANS,
    Rig,
    ScriptedReplicas,
    ask,
    ask_later,
    new_conversation,
    rig,
    until,
)

pytestmark = pytest.mark.anyio


def slots(room: int, *, n: int = 1, ranked: int = 0) -> list[ModelState]:
    return [
        ModelState(
            "small", "lab/small-1b", "ready", room=room, window=8_000, slots=n, ranked_slots=ranked
        )
    ]


def full() -> ScriptedReplicas:
    """Engines with one slot, which something else has."""
    return ScriptedReplicas(states=slots(0))


async def blocks(response: httpx2.Response) -> AsyncIterator[str]:
    """The events and comments of a stream, one by one."""
    text = ""
    async for part in response.aiter_text():
        text += part
        while "\n\n" in text:
            block, text = text.split("\n\n", 1)
            yield block


async def wait_in_line(here: Rig, client: httpx2.AsyncClient) -> dict[str, Any]:
    """A turn that waits; nobody follows it."""
    conversation = await new_conversation(client)
    answer = await ask_later(client, conversation, key=conversation)
    assert answer.status_code == 202, answer.text
    posted: dict[str, Any] = answer.json()
    return posted


async def test_a_turn_that_waits_is_told_its_place_and_then_answered() -> None:
    async with rig(replicas=full()) as here:
        first, client = await here.user("ben"), await here.user("ana")
        await wait_in_line(here, first)
        posted = await wait_in_line(here, client)
        told: list[str] = []
        async with client.stream("GET", posted["streamUrl"]) as response:
            async for block in blocks(response):
                told.append(block)
                if block.startswith("event: queue"):
                    here.replicas.states[:] = slots(64, n=64)
    queue = [block for block in told if block.startswith("event: queue")]
    place = json.loads(queue[0].split("data: ", 1)[1])
    assert place["position"] == 2
    assert place["estimatedWaitSeconds"] >= 1
    assert not any("id:" in block for block in queue)
    ids = [block.split("\n")[0] for block in told if block.startswith("id:")]
    assert ids == [f"id: {n}" for n in range(1, len(ids) + 1)]
    assert "event: done" in told[-1]


async def test_a_place_is_told_again_only_when_it_has_changed() -> None:
    async with rig(replicas=full()) as here:
        client = await here.user("ana")
        posted = await wait_in_line(here, client)
        owner = (await client.get("/v1/me")).json()["id"]
        turn = await here.backend.turns.find(owner, posted["messageId"])
        assert turn is not None
        desk = replace(here.desk, log=Silent())
        desk.line._looked_at = 0.0
        async with aclosing(follow_answer(desk, turn, after=0, attempt=None)) as batches:
            told = [await anext(batches) for _ in range(4)]
    assert told == [Place(1, 1), (), (), ()]


class Silent(MemoryLog):
    """A log in which nothing happens, and nobody waits for that."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(SystemClock()))

    async def wait(self, reply_id: str, attempt: int, after: int, *, timeout_s: float) -> None:
        await asyncio.sleep(0)


async def test_openais_clients_see_a_comment_instead() -> None:
    async with rig(replicas=full()) as here:
        client = await here.user("ana")
        body = {
            "model": "auto",
            "stream": True,
            "messages": [{"role": "user", "content": "Hi"}],
        }
        told: list[str] = []
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            async for block in blocks(response):
                told.append(block)
                if block.startswith(": queue"):
                    here.replicas.states[:] = slots(64, n=64)
    assert any(block.startswith(": queue position=1 wait=") for block in told)
    assert all(block.startswith((":", "data: ")) for block in told)
    assert told[-1] == "data: [DONE]"


async def test_past_the_plans_wait_the_door_says_when_to_come_back() -> None:
    plans = {**PLANS, "free": replace(PLANS["free"], wait_s=1.0)}
    async with rig(replicas=full(), plans=plans) as here:
        first, client = await here.user("ben"), await here.user("ana")
        await wait_in_line(here, first)
        refused = await ask_later(client, await new_conversation(client))
        program = await client.post(
            "/v1/chat/completions",
            json={"model": "auto", "messages": [{"role": "user", "content": "Hi"}]},
        )
        open_turns = list(here.backend.store.open_turns())
        figures = (await here.client().get("/metrics")).text
        here.replicas.states[:] = slots(64, n=64)
        await until(lambda: not list(here.backend.store.open_turns()))
        here.desk.line._looked_at = 0.0  # the next one looks for himself
        again = await ask_later(client, await new_conversation(client), "Again?")
    assert (refused.status_code, refused.json()["code"]) == (503, "busy")
    assert int(refused.headers["retry-after"]) == refused.json()["retryAfterSeconds"] >= 1
    assert (program.status_code, program.json()["error"]["code"]) == (503, "busy")
    assert "x-should-retry" not in program.headers
    assert len(open_turns) == 1
    assert 'tertulia_admissions_total{answer="LineFull"} 2.0' in figures
    assert again.status_code == 202


async def test_a_repeat_is_never_sent_away() -> None:
    """Its turn waits already: it finds that, however long the line is."""
    plans = {**PLANS, "free": replace(PLANS["free"], wait_s=0.5)}
    async with rig(replicas=full(), plans=plans) as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        first = await ask_later(client, conversation)
        second = await ask_later(client, conversation)
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json()["messageId"] == second.json()["messageId"]


async def test_a_burst_sees_itself() -> None:
    """Turns that are on their way into the store count before anybody has looked again."""
    plans = {**PLANS, "free": replace(PLANS["free"], wait_s=15.0)}
    async with rig(replicas=full(), plans=plans) as here:
        clients = [await here.user(f"user{n}") for n in range(8)]
        conversations = [await new_conversation(client) for client in clients]
        answers = await asyncio.gather(
            *(ask_later(*pair) for pair in zip(clients, conversations, strict=True))
        )
    assert sorted(answer.status_code for answer in answers) == [202] * 2 + [503] * 6


async def test_while_no_model_is_there_nobody_is_sent_away() -> None:
    starting = ModelState("small", "lab/small-1b", "starting", window=8_000)
    plans = {**PLANS, "free": replace(PLANS["free"], wait_s=0.001)}
    async with rig(replicas=ScriptedReplicas(states=[starting]), plans=plans) as here:
        client = await here.user("ana")
        await wait_in_line(here, client)
        await wait_in_line(here, client)


async def test_a_paid_turn_takes_the_place_of_a_free_one_where_engines_know_priorities() -> None:
    replicas = ScriptedReplicas(before_hold=1, states=slots(1, ranked=1))
    async with rig(replicas=replicas) as here:
        free, paid = await here.user("ana"), await here.user("ben", plan="plus")
        await wait_in_line(here, free)
        await until(lambda: here.worker.held)
        replicas.states[:] = slots(0, ranked=1)
        await wait_in_line(here, free)
        await wait_in_line(here, paid)
        await until(lambda: len(here.replicas.asked) == 2)
        held = len(here.worker.held)
    assert [request.priority for request in here.replicas.asked[:2]] == [1, 0]
    assert held == 2  # the other free one goes on waiting


async def test_whose_reader_has_gone_meanwhile_is_not_answered() -> None:
    plans = {**PLANS, "free": replace(PLANS["free"], abandon_s=0.2)}
    async with rig(replicas=full(), plans=plans) as here:
        client = await here.user("ana")
        posted = await wait_in_line(here, client)
        owner = (await client.get("/v1/me")).json()["id"]
        await asyncio.sleep(0.3)
        here.replicas.states[:] = slots(64, n=64)

        async def ended() -> Any:
            turn = await here.backend.turns.find(owner, posted["messageId"])
            return turn if turn is not None and turn.status.is_final else None

        turn = await until(ended)
    assert (turn.status, turn.finish, turn.charged) == (Status.STOPPED, Finish.ABANDONED, 0)
    assert here.replicas.asked == []


async def test_the_figures_show_each_lane() -> None:
    async with rig(replicas=full()) as here:
        client = await here.user("ana")
        await wait_in_line(here, client)
        here.desk.line._looked_at = 0.0
        await here.desk.line.refusal("nobody", PLANS["free"].lane, 1e9)
        figures = (await here.client().get("/metrics")).text
    assert 'tertulia_queued_turns{lane="free"} 1.0' in figures
    assert 'tertulia_queued_turns{lane="plus"} 0.0' in figures
    assert 'tertulia_running_turns{lane="free"} 0.0' in figures
    assert 'tertulia_estimated_wait_seconds{lane="free"}' in figures


async def test_a_store_that_can_not_be_looked_at_hides_the_line_and_nothing_else() -> None:
    class Away:
        async def look(self, _: object) -> Any:
            raise StoreUnavailable

    async with rig(
        change_desk=lambda desk: replace(
            desk, line=LineWatch(Away(), desk.line.promises, desk.replicas, desk.clock)
        )
    ) as here:
        client = await here.user("ana")
        answered = await ask(client, await new_conversation(client))
    assert answered.status_code == 200
    assert "event: done" in answered.text


class Looking:
    """A line that is empty, and whose looks take until they are let go."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()

    async def look(self, replies: Iterable[tuple[str, str]]) -> LineView:
        await self.answers.wait()
        return LineView(0.0, {})


async def test_who_came_since_the_last_look_is_seen_during_the_next() -> None:
    clock, line = ManualClock(), Looking()
    watch = LineWatch(line, MemoryPromises(clock), ScriptedReplicas(states=slots(1)), clock)
    assert await watch.refusal("ana", Lane.FREE, 1.0) is None
    for _ in range(3):
        watch.joined(Lane.FREE)
    seen = watch.newcomer_wait_s(Lane.FREE)
    clock.pass_(2.0)
    line.answers.clear()
    looking = asyncio.create_task(watch.refusal("ben", Lane.FREE, 1.0))
    await asyncio.sleep(0)
    assert seen - 2.0 == watch.newcomer_wait_s(Lane.FREE) > 0.0
    line.answers.set()
    assert await looking is None
    assert watch.newcomer_wait_s(Lane.FREE) == 0.0
