"""What users and administrators see of the ladder: over HTTP, with the real lanes behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from tertulia.core.ladder import Foothold
from tertulia.core.load import Sight
from tertulia.core.plans import Plan
from tertulia.core.types import ModelState
from tests.lanes.gateway_rig import (
    PLANS,
    Rig,
    ScriptedReplicas,
    ask,
    ask_later,
    events,
    new_conversation,
    rig,
    until,
)

pytestmark = pytest.mark.anyio

LARGE, SMALL = "lab/large-8b", "lab/small-1b"


class Pinned:
    """A keeper whose ladder stands on one rung."""

    def __init__(self, rung: int) -> None:
        self.foothold = Foothold(rung, held_s=3.0, changes=7)

    async def tell(self, name: str, sight: Sight) -> tuple[Foothold, Sequence[Sight]]:
        return self.foothold, [sight]

    async def step(self, seen: Foothold, to: int) -> Foothold:
        return self.foothold


def both_ready() -> ScriptedReplicas:
    return ScriptedReplicas(
        states=[
            ModelState("large", LARGE, "ready", room=8, slots=8, window=8_000),
            ModelState("small", SMALL, "ready", room=8, slots=8, window=8_000),
        ]
    )


def plans() -> dict[str, Plan]:
    free = replace(PLANS["free"], answer_tokens=1_000, ladder=True, models=("large", "small"))
    return {**PLANS, "free": free, "plus": replace(PLANS["plus"], models=("large", "small"))}


@asynccontextmanager
async def on_rung(rung: int) -> AsyncIterator[Rig]:
    replicas = both_ready()
    async with rig(plans=plans(), replicas=replicas, rungs=Pinned(rung)) as here:
        await here.desk.lookout.look(replicas, None)
        yield here


async def meta_of(here: Rig, plan: str) -> tuple[str, str, list[str]]:
    client = await here.user(f"user-{plan}", plan=plan)
    reply = await ask(client, await new_conversation(client), "Prove it.", model="large")
    [meta] = [data for _, kind, data in events(reply.text) if kind == "meta"]
    return meta["model"], meta["reason"], meta["notices"]


async def test_at_the_foot_everybody_gets_all() -> None:
    async with on_rung(0) as here:
        assert await meta_of(here, "free") == (LARGE, "picked", [])
        assert here.replicas.asked[0].max_tokens == 1_000


async def test_on_the_first_rung_the_small_model_answers_free_turns_and_says_so() -> None:
    async with on_rung(1) as here:
        assert await meta_of(here, "free") == (SMALL, "ladder", ["ladder_small"])
        assert here.replicas.asked[0].max_tokens == 1_000
        assert await meta_of(here, "plus") == (LARGE, "picked", [])


async def test_on_the_second_rung_free_answers_are_short_and_say_so() -> None:
    async with on_rung(2) as here:
        found = await meta_of(here, "free")
        assert found == (SMALL, "ladder", ["ladder_short", "ladder_small"])
        assert here.replicas.asked[0].max_tokens == 300
        assert await meta_of(here, "plus") == (LARGE, "picked", [])
        assert here.replicas.asked[1].max_tokens == 800


@pytest.mark.parametrize(("plan", "abandon_s"), [("free", 5.0), ("plus", 30.0)])
async def test_on_the_second_rung_a_free_reply_to_nobody_ends_sooner(
    plan: str, abandon_s: float
) -> None:
    async with on_rung(2) as here:
        here.replicas.before_hold = 0
        client = await here.user("ana", plan=plan)
        taken = await ask_later(client, await new_conversation(client))
        reply_id = taken.json()["messageId"]
        turn = await until(lambda: here.backend.store.turns.get(reply_id))
        assert turn.abandon_s == abandon_s


async def test_an_administrator_sees_the_ladder_and_nobody_else_does() -> None:
    async with on_rung(2) as here:
        user = await here.user("ana")
        admin = await here.user("root", role="admin")
        refused = await user.get("/v1/admin/ladder")
        seen = (await admin.get("/v1/admin/ladder")).json()
    assert refused.status_code == 403
    assert (seen["rung"], seen["name"], seen["changes"]) == (2, "free_is_short", 7)
    assert seen["heldSeconds"] >= 3.0
    assert seen["heardSecondsAgo"] >= 0.0
    assert seen["load"] == {"onRung": [0.0, 0.0, 0.0], "isWhole": False}
    assert seen["plans"]["free"] == {
        "answerTokens": 300,
        "goesToSmall": True,
        "startsWithinSeconds": 10.0,
        "abandonSeconds": 5.0,
    }
    assert seen["plans"]["plus"]["goesToSmall"] is False


async def test_before_anything_was_heard_the_load_is_unknown_and_not_nothing() -> None:
    async with rig(replicas=both_ready()) as here:
        admin = await here.user("root", role="admin")
        seen = (await admin.get("/v1/admin/ladder")).json()
    assert (seen["rung"], seen["load"], seen["heardSecondsAgo"]) == (0, None, None)
