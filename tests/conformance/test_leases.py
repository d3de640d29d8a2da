"""Promises of the `Leases` port: places that end by themselves, counted over all processes."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.world import FleetParts

pytestmark = pytest.mark.anyio

LASTS_S = 20.0
PROMPT_S = 5.0


async def taken(fleet: FleetParts, lease: str, *, limit: int = 2, name: str = "ana") -> bool:
    return await fleet.leases.take(name, lease, limit=limit, lasts_s=LASTS_S) is None


async def until_taken(fleet: FleetParts, lease: str) -> None:
    """What is freed at one process is free at another a moment later."""
    async with asyncio.timeout(PROMPT_S):
        while await fleet.other_leases.take("ana", lease, limit=2, lasts_s=LASTS_S) is not None:  # noqa: ASYNC110 - no server tells of it
            await asyncio.sleep(0.01)


async def test_a_name_holds_as_many_as_its_limit_over_all_processes(fleet: FleetParts) -> None:
    takes = [
        leases.take("ana", f"lease-{n}", limit=7, lasts_s=LASTS_S)
        for n, leases in enumerate([fleet.leases, fleet.other_leases] * 15)
    ]
    waits = await asyncio.gather(*takes)
    assert sum(wait is None for wait in waits) == 7
    assert await taken(fleet, "lease-other", name="ben")


async def test_a_refusal_says_when_there_is_a_place_and_changes_nothing(fleet: FleetParts) -> None:
    assert await taken(fleet, "first")
    fleet.pass_(5)
    assert await taken(fleet, "second")
    for leases in (fleet.leases, fleet.other_leases):
        wait = await leases.take("ana", "third", limit=2, lasts_s=LASTS_S)
        assert wait is not None
        assert LASTS_S - 5 - PROMPT_S < wait <= LASTS_S - 5
    fleet.pass_(LASTS_S - 5)
    assert await taken(fleet, "fourth"), "the first has ended"
    assert not await taken(fleet, "fifth"), "the refused ones hold nothing, the second does"


async def test_a_lower_limit_waits_for_as_many_as_are_too_many(fleet: FleetParts) -> None:
    for lease in ("first", "second", "third"):
        assert await taken(fleet, lease, limit=3)
        fleet.pass_(5)
    wait = await fleet.leases.take("ana", "fourth", limit=1, lasts_s=LASTS_S)
    assert wait is not None
    assert LASTS_S - 5 - PROMPT_S < wait <= LASTS_S - 5, "until the newest of them ends"


async def test_what_is_held_is_taken_again_whatever_the_limit(fleet: FleetParts) -> None:
    """A caller that did not hear the answer asks again."""
    assert await taken(fleet, "first")
    assert await taken(fleet, "second")
    fleet.pass_(15)
    assert await taken(fleet, "first", limit=1)
    fleet.pass_(10)
    assert await taken(fleet, "third"), "the second has ended"
    assert not await taken(fleet, "fourth"), "the first was taken again"


async def test_what_is_renewed_goes_on_and_what_is_not_ends(fleet: FleetParts) -> None:
    assert await taken(fleet, "first")
    assert await taken(fleet, "second")
    fleet.pass_(15)
    await fleet.leases.renew([("ana", "first"), ("ben", "first")], lasts_s=LASTS_S)
    fleet.pass_(10)
    assert await taken(fleet, "third")
    assert not await taken(fleet, "fourth")
    assert not await taken(fleet, "second", limit=1, name="ben")


async def test_what_was_lost_is_there_again_when_it_is_renewed(fleet: FleetParts) -> None:
    """More than the limit, if need be: they are in use."""
    held = [("ana", f"lease-{n}") for n in range(5)]
    await fleet.leases.renew(held, lasts_s=LASTS_S)
    await fleet.leases.renew([], lasts_s=LASTS_S)
    assert not await taken(fleet, "another", limit=5)
    assert await taken(fleet, "another", limit=6)


async def test_what_is_freed_makes_room_and_freeing_it_twice_makes_no_more(
    fleet: FleetParts,
) -> None:
    assert await taken(fleet, "first")
    assert await taken(fleet, "second")
    for _ in range(2):
        fleet.leases.free("ana", "first")
    fleet.leases.free("nobody", "first")
    await until_taken(fleet, "third")
    assert not await taken(fleet, "fourth")


async def test_a_name_that_is_forgotten_holds_nothing(fleet: FleetParts) -> None:
    for lease in ("first", "second"):
        assert await taken(fleet, lease)
        assert await taken(fleet, lease, name="ben")
    fleet.leases.forget("ana")
    fleet.leases.forget("nobody")
    await until_taken(fleet, "third")
    assert await taken(fleet, "fourth")
    assert not await taken(fleet, "third", name="ben")


async def test_a_name_is_a_name_whatever_it_is_made_of(fleet: FleetParts) -> None:
    for name in ("{ana}", "ana}", "a:n*a", "Ána", ""):
        assert await taken(fleet, "first", limit=1, name=name)
        assert not await taken(fleet, "second", limit=1, name=name)
