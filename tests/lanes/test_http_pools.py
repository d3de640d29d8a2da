"""Two models, one line: a full one holds nobody up at the other, and overflows at the door."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx2
import pytest

from tertulia.backends.memory.promises import MemoryPromises
from tertulia.core.plans import Plan
from tertulia.core.types import Lane, ModelState, Status, Turn
from tertulia.core.waiting import LaneState, LineView
from tertulia.gateway.line import LineWatch
from tests.conformance.world import ManualClock
from tests.lanes.gateway_rig import (
    PLANS,
    Rig,
    ScriptedReplicas,
    ask_later,
    events,
    new_conversation,
    rig,
    until,
)

pytestmark = pytest.mark.anyio

EASY = "Hello there!"
HARD = "Prove the theorem step by step and explain why the algorithm is optimal."
LARGE, SMALL = "lab/large-8b", "lab/small-1b"


def models(*, large: int, small: int = 8) -> list[ModelState]:
    """One slot for the large model and eight for the small, with so much room."""
    return [
        ModelState("large", LARGE, "ready", room=large, window=8_000, slots=1),
        ModelState("small", SMALL, "ready", room=small, window=8_000, slots=8),
    ]


async def post(client: httpx2.AsyncClient, conversation: str, text: str, **more: Any) -> str:
    """The id of the reply, which is stored and waits."""
    answer = await ask_later(client, conversation, text, **more)
    assert answer.status_code == 202, answer.text
    name: str = answer.json()["messageId"]
    return name


def stored(here: Rig, reply_id: str) -> Turn:
    return here.backend.store.turns[reply_id]


async def chosen(here: Rig, reply_id: str) -> tuple[str | None, str | None]:
    """Who answers and why, once that is known."""
    await until(lambda: stored(here, reply_id).model)
    turn = stored(here, reply_id)
    return turn.model, turn.reason


def looks_again(here: Rig) -> None:
    here.desk.line._looked_at = 0.0


@dataclass
class Full:
    """A gateway whose large model answers one of ben's turns, while another waits for it. Ana has a
    conversation that it has answered before."""

    here: Rig
    ana: httpx2.AsyncClient
    own: str

    async def asks(self, text: str, **more: Any) -> str:
        """Ana's next message there."""
        return await post(self.ana, self.own, text, **more)

    def ends(self) -> None:
        """What runs goes on, and the large model has room again."""
        self.here.replicas.hold.set()
        self.here.replicas.states[:] = models(large=1)
        looks_again(self.here)


@asynccontextmanager
async def full_large(free: Plan = PLANS["free"]) -> AsyncIterator[Full]:
    replicas = ScriptedReplicas(states=models(large=1))
    plans = {"free": free, "plus": replace(PLANS["plus"], wait_s=600.0)}
    async with rig(replicas=replicas, plans=plans) as here:
        ana, ben = await here.user("ana"), await here.user("ben")
        own = await new_conversation(ana)
        first = await post(ana, own, HARD, key="first")
        await until(lambda: stored(here, first).status.is_final)
        replicas.before_hold = 1
        running = await post(ben, await new_conversation(ben), HARD, key="b1", model="large")
        assert await chosen(here, running) == (LARGE, "picked")
        replicas.states[:] = models(large=0)
        await post(ben, await new_conversation(ben), HARD, key="b2", model="large")
        looks_again(here)
        yield Full(here, ana, own)


async def test_a_turn_that_waits_for_the_full_model_holds_nobody_up_at_the_other() -> None:
    replicas = ScriptedReplicas(states=models(large=0))
    async with rig(replicas=replicas) as here:
        ana, ben = await here.user("ana"), await here.user("ben")
        waiting = await post(ben, await new_conversation(ben), HARD, key="b1", model="large")
        easy = await post(ana, await new_conversation(ana), EASY, key="a1")
        assert await chosen(here, easy) == (SMALL, "auto")
        await until(lambda: stored(here, easy).status.is_final)
        assert stored(here, waiting).status is Status.QUEUED, "no engine has heard of it"
        assert not here.worker.held
        replicas.states[:] = models(large=1)
        assert await chosen(here, waiting) == (LARGE, "picked")


async def test_past_the_wait_a_conversation_overflows_and_goes_back_when_there_is_room() -> None:
    async with full_large() as full:
        meanwhile = await full.asks(EASY, key="meanwhile")
        assert await chosen(full.here, meanwhile) == (SMALL, "overflow")
        full.ends()
        await until(lambda: stored(full.here, meanwhile).status.is_final)
        stream = await full.ana.get(f"/v1/messages/{meanwhile}/stream")
        meta = events(stream.text)[0][2]
        afterwards = await full.asks(EASY, key="afterwards")
        assert await chosen(full.here, afterwards) == (LARGE, "auto")
    assert (meta["model"], meta["requested"], meta["reason"]) == (SMALL, "auto", "overflow")


async def test_within_the_wait_it_waits_for_its_own_model() -> None:
    async with full_large(replace(PLANS["free"], wait_s=600.0)) as full:
        waiting = await full.asks(EASY, key="waiting")
        assert stored(full.here, waiting).awaited == LARGE
        assert stored(full.here, waiting).status is Status.QUEUED
        full.ends()
        assert await chosen(full.here, waiting) == (LARGE, "auto")


async def test_who_picked_the_full_model_is_told_when_to_come_back() -> None:
    async with full_large() as full:
        refused = await ask_later(full.ana, full.own, HARD, key="picked", model="large")
        program = await full.ana.post(
            "/v1/chat/completions",
            json={"model": "large", "messages": [{"role": "user", "content": "Hi"}]},
        )
        small = await full.asks(HARD, key="small", model="small")
        assert await chosen(full.here, small) == (SMALL, "picked")
    assert (refused.status_code, refused.json()["code"]) == (503, "busy")
    assert int(refused.headers["retry-after"]) >= 1
    assert (program.status_code, program.json()["error"]["code"]) == (503, "busy")


async def test_where_the_ladder_may_act_a_pick_overflows_and_says_so() -> None:
    async with full_large(replace(PLANS["free"], ladder=True)) as full:
        moved = await full.asks(HARD, key="picked", model="large")
        assert await chosen(full.here, moved) == (SMALL, "overflow")
        assert stored(full.here, moved).requested == "large"


async def test_nobody_overflows_into_a_wait_that_is_no_shorter() -> None:
    async with full_large(replace(PLANS["free"], ladder=True)) as full:
        here = full.here
        here.replicas.states[:] = [replace(one, slots=1) for one in models(large=0, small=0)]
        for n in range(2):
            user = await here.user(f"dan{n}")
            await post(user, await new_conversation(user), HARD, key=f"d{n}", model="large")
            looks_again(here)
        for n in range(3):
            user = await here.user(f"eva{n}", plan="plus")
            await post(user, await new_conversation(user), EASY, key=f"e{n}", model="small")
        looks_again(here)
        refused = await ask_later(full.ana, full.own, HARD, key="picked", model="large")
    assert (refused.status_code, refused.json()["code"]) == (503, "busy")
    # A place at the large model, where he would wait no longer than at the small one.
    assert int(refused.headers["retry-after"]) < 24


class Crowded:
    """Twenty wait for the large model's one slot, and twenty for any of the small one's eight."""

    async def look(self, _: object) -> LineView:
        return LineView(
            0.0,
            {Lane.FREE: LaneState(queued=40, running=9, begun=49)},
            awaiting={(Lane.FREE, "large"): 20},
            running_on={LARGE: 1, SMALL: 8},
        )


async def test_who_waits_long_for_one_model_makes_nobody_come_back_later_for_another() -> None:
    clock = ManualClock()
    replicas = ScriptedReplicas(states=models(large=0, small=0))
    watch = LineWatch(Crowded(), MemoryPromises(clock), replicas, clock)
    for n in range(10):
        told = await watch.refusal(f"user{n}", Lane.FREE, 10.0, "large")
        assert told is not None
        assert told > 200.0
    for name in (None, SMALL):
        told = await watch.refusal(f"newcomer{name}", Lane.FREE, 10.0, name)
        assert told is not None
        assert told < 30.0
