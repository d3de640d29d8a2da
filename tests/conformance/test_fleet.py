"""Promises of what a fleet's processes share beside the store: bell, homes, holds and registry."""

from __future__ import annotations

import asyncio

import pytest

from tertulia.core.fleet import MOST_HELD, Home, ReplicaReport
from tests.conformance.world import FleetParts

pytestmark = pytest.mark.anyio

LONG_S = 50.0  # a test that waits so long has failed
PROMPT_S = 20.0


def report(name: str, incarnation: str = "first", tokens_done: int = 0) -> ReplicaReport:
    return ReplicaReport(
        name,
        incarnation,
        f"http://{name}:8000",
        "small-1",
        4,
        running=2,
        tokens_done=tokens_done,
        prefill_per_s=812.5,
    )


async def test_a_ring_wakes_every_process(fleet: FleetParts) -> None:
    waiting = [
        asyncio.create_task(bell.wait("turns", timeout_s=LONG_S))
        for bell in (fleet.bell, fleet.other_bell)
    ]
    await fleet.listens("turns")
    async with asyncio.timeout(PROMPT_S):
        while not waiting[1].done():
            fleet.bell.ring("turns")
            await asyncio.sleep(0.01)
        await asyncio.gather(*waiting)


async def test_a_ring_between_looking_and_waiting_is_heard_here(fleet: FleetParts) -> None:
    fleet.bell.ring("turns")
    async with asyncio.timeout(PROMPT_S):
        await fleet.bell.wait("turns", timeout_s=LONG_S)


async def test_a_wait_for_a_bell_ends_by_itself(fleet: FleetParts) -> None:
    async with asyncio.timeout(PROMPT_S):
        await fleet.bell.wait("turns", timeout_s=0.01)


async def test_a_cancelled_wait_for_a_bell_harms_no_other(fleet: FleetParts) -> None:
    gone, waiting = [
        asyncio.create_task(fleet.other_bell.wait("turns", timeout_s=LONG_S)) for _ in range(2)
    ]
    await fleet.listens("turns")
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    async with asyncio.timeout(PROMPT_S):
        while not waiting.done():
            fleet.bell.ring("turns")
            await asyncio.sleep(0.01)


async def test_the_last_move_is_found_everywhere(fleet: FleetParts) -> None:
    assert await fleet.homes.find("c_1") is None
    await fleet.homes.move("c_1", Home("replica a", 1200))
    await fleet.homes.move("c_2", Home("replica-b", 7))
    await fleet.homes.move("c_1", Home("replica-é", 1500))
    assert await fleet.other_homes.find("c_1") == Home("replica-é", 1500)
    assert await fleet.other_homes.find("c_2") == Home("replica-b", 7)


async def test_what_is_held_is_held_everywhere_until_it_is_let_go(fleet: FleetParts) -> None:
    assert await fleet.holds.names() == frozenset()
    assert await fleet.holds.hold("replica é:8000")
    assert await fleet.other_holds.hold("replica é:8000")
    assert await fleet.other_holds.hold("b")
    assert await fleet.holds.names() == {"replica é:8000", "b"}
    await fleet.holds.let_go("b")
    await fleet.holds.let_go("b")
    assert await fleet.other_holds.names() == {"replica é:8000"}


async def test_no_more_are_held_than_can_be_remembered(fleet: FleetParts) -> None:
    for number in range(MOST_HELD):
        assert await fleet.holds.hold(f"r-{number}")
    assert not await fleet.holds.hold("one more")
    assert await fleet.holds.hold("r-7")
    assert len(await fleet.holds.names()) == MOST_HELD


async def test_the_newest_report_of_each_replica_is_known_by_name(fleet: FleetParts) -> None:
    assert list(await fleet.registry.reports()) == []
    for told in (report("b"), report("a"), report("b", tokens_done=90)):
        await fleet.registry.report(told)
    first, second = await fleet.registry.reports()
    assert 0 <= first.age_s < PROMPT_S
    assert (first.name, first.tokens_done, first.prefill_per_s) == ("a", 0, 812.5)
    assert (second.name, second.tokens_done, second.cache_used_share) == ("b", 90, None)


async def test_a_report_ages_and_is_forgotten_after_a_minute(fleet: FleetParts) -> None:
    await fleet.registry.report(report("a"))
    fleet.pass_(40)
    await fleet.registry.report(report("b"))
    first, second = await fleet.registry.reports()
    assert 40 <= first.age_s < 40 + PROMPT_S
    assert 0 <= second.age_s < PROMPT_S
    fleet.pass_(30)
    assert [told.name for told in await fleet.registry.reports()] == ["b"]
    await fleet.registry.report(report("a"))
    assert [told.name for told in await fleet.registry.reports()] == ["a", "b"]


async def test_a_replica_that_leaves_is_gone_but_not_its_successor(fleet: FleetParts) -> None:
    await fleet.registry.report(report("a", "first"))
    await fleet.registry.report(report("a", "second"))
    await fleet.registry.leave("a", "first")
    assert [told.incarnation for told in await fleet.registry.reports()] == ["second"]
    await fleet.registry.leave("a", "second")
    await fleet.registry.leave("a", "second")
    assert list(await fleet.registry.reports()) == []
