"""The planner for administrators: plans at once, simulations that end with whoever reads them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from scripts import leftovers
from tertulia.gateway.desk import Desk
from tertulia.ports_of_planning import Busy, CantPlan, Conditions, PlanWish, Progress, Scenario
from tertulia.wiring.planning import ProcessPlanning
from tests.conftest import MARK
from tests.lanes.gateway_rig import Rig, events, rig, until

pytestmark = pytest.mark.anyio

LONG_S = 50.0  # a test that waits so long has failed
QUICK = {"values": {"users": 100.0}, "load": 10.0}
USUAL: dict[str, Any] = {}


class Endless(ProcessPlanning):
    """Plays at the usual load for longer than any test waits: it does not end by itself."""

    async def scenario(self, wish: PlanWish, conditions: Conditions) -> Scenario | CantPlan | Busy:
        usual = await super().scenario(wish, conditions)
        if isinstance(usual, CantPlan | Busy) or conditions.load != 1.0:
            return usual
        return {**usual, "seconds": 800_000.0}


@asynccontextmanager
async def planned(
    planning: ProcessPlanning | None = None,
) -> AsyncIterator[tuple[Rig, httpx2.AsyncClient]]:
    def change(desk: Desk) -> Desk:
        return desk if planning is None else replace(desk, planning=planning)

    async with rig(change_desk=change) as here:
        yield here, await here.user("root", role="admin")


def watched(admin: httpx2.AsyncClient) -> AbstractAsyncContextManager[httpx2.Response]:
    """The usual simulation; on a busy machine it may be long until something is told."""
    return admin.stream("POST", "/v1/admin/simulation", json=USUAL, timeout=LONG_S)


def players() -> list[str]:
    """The simulations that run."""
    found = leftovers.find(MARK, os.environ[MARK])
    return [one.command for one in found if "tertulia.simulator" in one.command]


async def test_a_plan_is_the_planners_own_with_what_was_asked_in_it() -> None:
    async with planned() as (_, admin):
        body = {
            "values": {"users": 50_000, "hit_share": 0.5},
            "words": {"large.accelerator": "h200"},
        }
        told = (await admin.post("/v1/admin/plan", json=body)).json()
    by_name = {one["name"]: one["value"] for one in told["sliders"]}
    assert (by_name["users"], by_name["hit_share"]) == (50_000, 0.5)
    assert told["figures"]["accelerators"]["value"] > 0
    assert told["binds"]["large"] in ("compute", "bandwidth", "overhead", "kv", "slots")
    assert [curve["over"] for curve in told["curves"]] == ["users", "hit_share", "small_share"]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"values": {"users": 0}}, "`users` is 0, but has to be between 1 and"),
        ({"values": {"secret-name": 1}}, "none of the planner's names"),
        ({"values": {"large.accelerators_per_replica": 1}}, "leave no room for a KV cache"),
        ({"words": {"hit_share": "simulated"}}, "Words are for the model"),
        ({"values": {f"n{number}": 1 for number in range(101)}}, "at most 100 items"),
        ({"values": {"users": "many"}}, "valid number"),
        ({"load": 2}, "There is no field load here."),
    ],
)
async def test_nonsense_is_a_400_with_one_sentence(body: dict[str, Any], sentence: str) -> None:
    async with planned() as (_, admin):
        refused = await admin.post("/v1/admin/plan", json=body)
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_request")
    assert sentence in refused.json()["detail"]
    assert "secret-name" not in refused.text


@pytest.mark.parametrize("path", ["/v1/admin/plan", "/v1/admin/simulation"])
async def test_it_is_for_administrators_alone(path: str) -> None:
    async with planned() as (here, _):
        ana = await here.user("ana")
        assert (await ana.post(path, json={})).status_code == 403
    assert players() == []


async def test_a_simulation_tells_how_far_it_is_and_what_came_of_it() -> None:
    async with planned() as (here, admin), asyncio.timeout(LONG_S):
        told = events((await admin.post("/v1/admin/simulation", json=QUICK)).text)
        *progress, (_, kind, last) = told
        await until(lambda: not len(here.desk.streams))
    shares = [data["share"] for _, kind, data in progress]
    assert shares == sorted(set(shares))
    assert len(shares) > 50
    assert {kind for _, kind, _ in progress} == {"progress"}
    assert kind == "told"
    assert [group["name"] for group in last["groups"]] == ["plus", "free"]
    assert last["inUse"] > 0
    assert len(last["points"]) > 100


async def test_without_the_policies_more_people_wait_in_vain() -> None:
    """The same plan under so much that it is too small: what the switches are there to show."""
    async with planned() as (_, admin), asyncio.timeout(LONG_S):
        values = {"users": 1_000.0, "answer_tokens": 10_000.0, "spare_replicas": 0.0}
        off = {"ladder": False, "paidFirst": False, "door": False}
        gave_up = {}
        for name, policies in (("on", {}), ("off", off)):
            body = {"values": values, "load": 2.0, **policies}
            told = events((await admin.post("/v1/admin/simulation", json=body)).text)[-1][2]
            gave_up[name] = next(one for one in told["groups"] if one["name"] == "plus")["timedOut"]
    assert gave_up["on"] < 0.02 < 0.1 < gave_up["off"]


async def test_a_simulation_ends_as_soon_as_nobody_reads_it() -> None:
    async with planned(Endless()) as (here, admin), asyncio.timeout(LONG_S):
        async with watched(admin) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            assert len(players()) == 1
            second = await admin.post("/v1/admin/simulation", json=QUICK)
        assert (second.status_code, second.json()["code"]) == (429, "too_many_requests")
        await until(lambda: not players())
        await until(lambda: not len(here.desk.streams))
        again = events((await admin.post("/v1/admin/simulation", json=QUICK)).text)
        assert again[-1][1] == "told"


async def test_a_gateway_that_leaves_ends_its_simulation() -> None:
    async with planned(Endless()) as (here, admin), asyncio.timeout(LONG_S):
        async with watched(admin) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            here.desk.streams.draining = True
            text = "".join([line async for line in lines])
        assert "event: told" not in text
        await until(lambda: not players())


async def test_a_simulation_that_takes_too_long_is_ended_with_a_sentence() -> None:
    async with planned(ProcessPlanning(longest_s=0.0)) as (_, admin), asyncio.timeout(LONG_S):
        told = events((await admin.post("/v1/admin/simulation", json=QUICK)).text)
    assert [kind for _, kind, _ in told] == ["fail"]
    assert told[0][2]["message"].startswith("The simulation took too long")
    assert players() == []


async def test_what_the_simulator_does_not_play_is_told_in_its_sentence() -> None:
    planning = ProcessPlanning()
    scenario = await planning.scenario(PlanWish(), Conditions())
    assert not isinstance(scenario, CantPlan | Busy)
    beyond = {**scenario, "traffic": {"per_s": 1e8}}
    told = [one async for one in planning.play(beyond)]
    assert len(told) == 1
    assert isinstance(told[0], CantPlan)
    assert "messages are more than the exact engine plays" in told[0].why


async def test_two_that_begin_at_the_same_moment_are_not_both_played() -> None:
    planning = ProcessPlanning()
    scenario = await planning.scenario(PlanWish(), Conditions())
    assert not isinstance(scenario, CantPlan | Busy)
    first = planning.play(scenario)
    assert isinstance(await anext(first), Progress)
    assert [one async for one in planning.play(scenario)] == [Busy()]
    await first.aclose()
    assert players() == []


async def test_more_plans_at_once_than_may_wait_are_sent_away() -> None:
    planning = ProcessPlanning()
    told = await asyncio.gather(*(planning.plan(PlanWish()) for _ in range(12)))
    assert sum(isinstance(one, Busy) for one in told) == 4
    assert not isinstance(await planning.plan(PlanWish()), Busy)
