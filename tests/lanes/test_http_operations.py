"""What administrators see of the fleet, live and at once, and how they set a replica aside."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from tertulia.core.fleet import MOST_HELD, ReplicaSight
from tertulia.core.ladder import Foothold
from tertulia.core.money import Prices
from tertulia.gateway.desk import Desk
from tertulia.gateway.streams import Seat
from tests.lanes.gateway_rig import FORBIDDEN, Rig, ScriptedReplicas, ask, new_conversation, rig

pytestmark = pytest.mark.anyio

LONG_S = 20.0  # a test that waits so long has failed


def sight(name: str, generated: float | None = None, **more: Any) -> ReplicaSight:
    return ReplicaSight(
        name,
        "small-1",
        "tertulia",
        **{"state": "ready", "slots": 8, "running": 3, "owed_tokens": 90, **more},
        generated_tokens=generated,
    )


@asynccontextmanager
async def watched() -> AsyncIterator[tuple[Rig, httpx2.AsyncClient, ScriptedReplicas]]:
    """A rig with two replicas that were looked at once, and its administrator."""
    replicas = ScriptedReplicas(seen=[sight("a", 100.0), sight("b:1", state="lost", slots=4)])
    async with rig(replicas=replicas) as here:
        here.desk.pulse.beat()
        yield here, await here.user("root", role="admin"), replicas


async def events_of(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, Any]]:
    kind = ""
    async for line in lines:
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        if line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))


@asynccontextmanager
async def following(client: httpx2.AsyncClient) -> AsyncIterator[AsyncIterator[tuple[str, Any]]]:
    async with asyncio.timeout(LONG_S), client.stream("GET", "/v1/admin/live") as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield events_of(answer.aiter_lines())


async def looks_until_the_end(here: Rig, events: AsyncIterator[tuple[str, Any]]) -> int:
    n_looks = 0
    async for kind, _ in events:
        n_looks += kind == "now"
        here.desk.pulse.beat()
    return n_looks


async def test_a_look_says_what_is_known_and_null_for_what_is_not() -> None:
    async with watched() as (here, admin, replicas):
        replicas.seen[0] = sight("a", 1e9, cache_used_share=0.51234, cache_hit_share=0.25)
        here.desk.pulse.beat()
        seen = (await admin.get("/v1/admin/fleet")).json()
    first, second = seen["replicas"]
    assert (first["name"], first["state"], first["slots"], first["running"]) == ("a", "ready", 8, 3)
    assert (first["cacheUsed"], first["cacheHits"]) == (0.512, 0.25)
    assert first["tokensPerSecond"] > 0
    assert (second["state"], second["tokensPerSecond"], second["cacheHits"]) == ("lost", None, None)
    assert [lane["name"] for lane in seen["lanes"]] == ["plus", "free", "batch"]
    assert seen["ladder"]["name"] == "paid_first"
    assert seen["firstText"] == {"count": 0, "p50": None, "p95": None, "p99": None}


async def test_a_fleet_without_prices_has_no_cost() -> None:
    async with watched() as (_, admin, _):
        assert (await admin.get("/v1/admin/fleet")).json()["costs"] is None


async def test_a_million_tokens_cost_what_the_fleet_does_while_it_writes_them() -> None:
    prices = Prices(3.0, {"small-1": 4}, team_per_year=0, target=2.0)
    replicas = ScriptedReplicas(seen=[sight("a", 100.0), sight("b:1", state="lost")])

    def priced(desk: Desk) -> Desk:
        return replace(desk, rules=replace(desk.rules, prices=prices))

    async with rig(replicas=replicas, change_desk=priced) as here:
        admin = await here.user("root", role="admin")
        here.desk.pulse.beat()
        silent = (await admin.get("/v1/admin/fleet")).json()["costs"]
        here.desk.pulse.past.append(replace(here.desk.pulse.past[-1], tokens_per_s=10_000 / 3))
        busy = (await admin.get("/v1/admin/fleet")).json()["costs"]
    assert silent == {"perHour": 12.0, "perMillion": None, "targetPerMillion": 2.0}
    assert busy["perMillion"] == pytest.approx(1.0)


async def test_a_reply_is_measured_and_what_was_flagged_is_counted_without_its_words() -> None:
    async with watched() as (here, admin, replicas):
        ana = await here.user("ana")
        conversation = await new_conversation(ana)
        await ask(ana, conversation, "Why?")
        await ask(ana, conversation, f"About {FORBIDDEN}")
        replicas.script = ("It is ", FORBIDDEN, ". ")
        await ask(ana, conversation, "And?")
        here.desk.pulse.beat()
        told = (await admin.get("/v1/admin/fleet")).text
        figures = (await admin.get("/metrics")).text
    seen = json.loads(told)
    assert seen["firstText"]["count"] >= 1
    flags = [(one["stage"], one["category"], one["count"]) for one in seen["flagged"]]
    assert flags == [("input", "rules", 1), ("output", "rules", 1)]
    assert FORBIDDEN not in told
    assert "ana" not in told
    assert "tertulia_between_tokens_seconds_count" in figures


async def test_a_stream_tells_the_past_and_then_each_look() -> None:
    async with watched() as (here, admin, _), following(admin) as events:
        kind, past = await anext(events)
        assert (kind, len(past["points"]), past["steps"][0]["rung"]) == ("past", 1, 0)
        kind, first = await anext(events)
        assert (kind, len(first["replicas"])) == ("now", 2)
        here.desk.lookout.foothold = Foothold(2, held_s=1.0, changes=1)
        here.desk.pulse.beat()
        kind, second = await anext(events)
        assert (kind, second["ladder"]["rung"]) == ("now", 2)
        assert [step.rung for step in here.desk.pulse.steps] == [0, 2]
        assert len(here.desk.streams) == 1


async def test_a_stream_takes_one_of_the_administrators_seats_and_gives_it_back() -> None:
    async with watched() as (here, admin, _):
        me = (await admin.get("/v1/me")).json()["id"]
        limit = here.desk.plans["free"].open_streams
        for number in range(limit - 1):
            assert await here.desk.streams.take(Seat(me, f"s{number}"), limit=limit)
        async with following(admin) as events:
            await anext(events)
            refused = await admin.get("/v1/admin/live")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
        async with asyncio.timeout(LONG_S):
            while len(here.desk.streams):
                here.desk.pulse.beat()  # a stream whose client left ends at the next look
                await asyncio.sleep(0)


@pytest.mark.parametrize("changes", [{"role": "user"}, {"disabled": True}], ids=str)
async def test_a_stream_ends_when_its_reader_is_no_administrator_any_more(
    changes: dict[str, object],
) -> None:
    async with watched() as (here, admin, _), following(admin) as events:
        await anext(events)
        me = (await admin.get("/v1/me")).json()["id"]
        await here.backend.accounts.change(me, changes)
        assert await looks_until_the_end(here, events) <= 10


async def test_a_gateway_that_leaves_ends_its_streams() -> None:
    async with watched() as (here, admin, _), following(admin) as events:
        await anext(events)
        here.desk.streams.draining = True
        assert await looks_until_the_end(here, events) <= 2


async def test_a_replica_is_set_aside_and_gets_work_again() -> None:
    async with watched() as (here, admin, _):
        held = await admin.post("/v1/admin/drain", json={"replica": "b:1"})
        assert (held.status_code, await here.desk.holds.names()) == (204, frozenset(("b:1",)))
        unknown = await admin.post("/v1/admin/drain", json={"replica": "nobody"})
        assert (unknown.status_code, unknown.json()["field"]) == (400, "replica")
        for _ in range(2):
            let_go = await admin.post("/v1/admin/undrain", json={"replica": "b:1"})
            assert (let_go.status_code, await here.desk.holds.names()) == (204, frozenset())
        for number in range(MOST_HELD):
            await here.desk.holds.hold(f"r-{number}")
        full = await admin.post("/v1/admin/drain", json={"replica": "a"})
        assert (full.status_code, full.headers["retry-after"]) == (429, "60")


async def test_nobody_but_administrators_sees_or_does_any_of_it() -> None:
    async with watched() as (here, _, _replicas):
        ana = await here.user("ana")
        calls = [("GET", "/v1/admin/fleet"), ("GET", "/v1/admin/live")]
        calls += [("POST", "/v1/admin/drain"), ("POST", "/v1/admin/undrain")]
        for method, path in calls:
            body = {"replica": "a"} if method == "POST" else None
            by_user = await ana.request(method, path, json=body)
            by_nobody = await here.client().request(method, path, json=body)
            assert (by_user.status_code, by_nobody.status_code) == (403, 401)
        assert await here.desk.holds.names() == frozenset()


async def test_half_an_hour_is_remembered_and_no_more() -> None:
    async with watched() as (here, admin, _):
        for number in range(2_000):
            here.desk.lookout.foothold = Foothold(number % 2, held_s=1.0)
            here.desk.pulse.beat()
        assert (len(here.desk.pulse.past), len(here.desk.pulse.steps)) == (900, 100)
        async with following(admin) as events:
            _, past = await anext(events)
    assert len(past["points"]) == 900


async def test_a_rate_is_of_what_was_there_before_and_did_not_begin_anew() -> None:
    async with watched() as (here, _, replicas):
        pulse = here.desk.pulse
        assert dict(pulse.rates) == {}
        replicas.seen = [sight("a", 40.0), sight("c", 7.0)]
        pulse.beat()
        assert dict(pulse.rates) == {}  # started again, and new
        replicas.seen = [sight("a", 41.0), sight("c", None)]
        pulse.beat()
        assert set(pulse.rates) == {"a"}
