"""Promises of the ladder's keeper: what one tells all hear, and of two that step one does."""

from __future__ import annotations

import asyncio

import pytest

from tertulia.core.ladder import TOP, Foothold
from tertulia.core.load import Demand, Sight
from tests.conformance.world import FleetParts

pytestmark = pytest.mark.anyio

SIGHT = Sight((Demand("small-1", (0.5, 2.0, 1.5)), Demand("large-é", (3.0, 0.0, 0.0))), 0.4, 0.1, 7)
OTHER = Sight(refused_per_s=2.5)
NOTHING = Sight()


async def foothold(fleet: FleetParts) -> Foothold:
    found, _ = await fleet.rungs.tell("looker", NOTHING)
    return found


def place(found: Foothold) -> tuple[int, int]:
    return found.rung, found.changes


async def test_a_ladder_begins_at_its_foot(fleet: FleetParts) -> None:
    found, sights = await fleet.rungs.tell("a", SIGHT)
    assert place(found) == (0, 0)
    assert 0 <= found.held_s < 5
    assert list(sights) == [SIGHT]


async def test_what_each_process_told_last_is_heard_by_all(fleet: FleetParts) -> None:
    await fleet.rungs.tell("a", NOTHING)
    await fleet.rungs.tell("a", SIGHT)
    _, sights = await fleet.other_rungs.tell("b", OTHER)
    assert sorted(sights, key=repr) == sorted([SIGHT, OTHER], key=repr)


async def test_what_was_told_too_long_ago_is_forgotten(fleet: FleetParts) -> None:
    await fleet.rungs.tell("a", SIGHT)
    fleet.pass_(4.0)
    _, sights = await fleet.rungs.tell("b", OTHER)
    assert len(sights) == 2
    fleet.pass_(3.0)
    _, sights = await fleet.rungs.tell("c", NOTHING)
    assert sorted(sights, key=repr) == sorted([OTHER, NOTHING], key=repr)


async def test_a_rung_is_taken_once_the_last_is_old_enough(fleet: FleetParts) -> None:
    seen = await foothold(fleet)
    assert place(await fleet.rungs.step(seen, 1)) == (0, 0)
    fleet.pass_(10.0)
    stepped = await fleet.rungs.step(seen, 1)
    assert place(stepped) == (1, 1)
    assert stepped.held_s < 5
    fleet.pass_(9.0)
    assert place(await fleet.rungs.step(await foothold(fleet), 2)) == (1, 1)
    fleet.pass_(1.0)
    assert place(await fleet.rungs.step(await foothold(fleet), 2)) == (2, 2)


async def test_of_all_that_saw_the_same_one_steps(fleet: FleetParts) -> None:
    seen = await foothold(fleet)
    fleet.pass_(30.0)
    both = (fleet.rungs, fleet.other_rungs)
    steps = [keeper.step(seen, 1) for keeper in both for _ in range(5)]
    found = await asyncio.gather(*steps)
    assert {place(one) for one in found} == {(1, 1)}
    fleet.pass_(30.0)
    assert place(await fleet.other_rungs.step(seen, 1)) == (1, 1), "it was seen before the step"


@pytest.mark.parametrize("to", [-1, 0, 2, TOP + 1])
async def test_no_step_leads_past_the_next_rung(fleet: FleetParts, to: int) -> None:
    fleet.pass_(30.0)
    seen = await foothold(fleet)
    fleet.pass_(30.0)
    assert place(await fleet.rungs.step(seen, to)) == (0, 0)


async def test_the_ladder_is_climbed_to_its_top_and_left_again(fleet: FleetParts) -> None:
    taken = []
    for to in (1, 2, 3, 4, 2, 1, 0, -1):
        seen = await foothold(fleet)
        fleet.pass_(10.0)
        taken.append((await fleet.other_rungs.step(seen, to)).rung)
    assert taken == [1, 2, 3, 3, 2, 1, 0, 0]
    assert (await foothold(fleet)).changes == 6
