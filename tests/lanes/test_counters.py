"""What all gateways count together, and what each lets in by itself while their store is away."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tertulia.backends.memory.leases import MemoryLeases
from tertulia.core.breaker import FAILURES
from tertulia.core.slices import slice_of
from tertulia.gateway import counters as module
from tertulia.gateway.counters import CALL_S, Counters
from tertulia.ports import StoreUnavailable
from tests.conformance.world import ManualClock

pytestmark = pytest.mark.anyio

LIMIT = 8
LASTS_S = 1e6  # nothing ends by itself in these tests
Mode = Literal["well", "gone", "silent"]


class Shared:
    """The store of all gateways, which can be gone (an error) or silent (no answer at all)."""

    def __init__(self, clock: ManualClock) -> None:
        self._leases = MemoryLeases(clock)
        self.mode: Mode = "well"
        self.asked = 0

    async def take(
        self, name: str, lease: str, *, limit: int, lasts_s: float, of_process: bool = False
    ) -> float | None:
        await self._reached()
        return await self._leases.take(name, lease, limit=limit, lasts_s=lasts_s)

    async def renew(self, held: Sequence[tuple[str, str]], *, lasts_s: float) -> None:
        await self._reached()
        await self._leases.renew(held, lasts_s=lasts_s)

    def free(self, name: str, lease: str) -> None:
        if self.mode == "well":
            self._leases.free(name, lease)

    def forget(self, name: str) -> None:
        if self.mode == "well":
            self._leases.forget(name)

    async def _reached(self) -> None:
        self.asked += 1
        if self.mode == "gone":
            raise StoreUnavailable("it is gone")
        if self.mode == "silent":
            await asyncio.Event().wait()


class Gateway:
    """One gateway's counters and the leases that it holds of one name."""

    def __init__(self, name: str, shared: Shared, clock: ManualClock) -> None:
        self.name = name
        self.counters = Counters(shared, MemoryLeases(clock), clock)
        self.held: list[str] = []
        self._taken = 0

    async def take(self) -> bool:
        self._taken += 1
        lease = f"{self.name}-{self._taken}"
        if await self.counters.take("ana", lease, limit=LIMIT, lasts_s=LASTS_S) is not None:
            return False
        self.held.append(lease)
        return True

    def free(self) -> None:
        if self.held:
            self.counters.free("ana", self.held.pop())

    async def renew(self) -> None:
        held = [("ana", lease) for lease in self.held]
        await self.counters.renew(held, lasts_s=LASTS_S)


def two_gateways() -> tuple[ManualClock, Shared, list[Gateway]]:
    clock = ManualClock()
    shared = Shared(clock)
    return clock, shared, [Gateway(name, shared, clock) for name in "ab"]


async def test_gateways_together_let_in_the_limit() -> None:
    _, _, gateways = two_gateways()
    taken = [await gateway.take() for gateway in gateways * LIMIT]
    assert sum(taken) == LIMIT
    gateways[0].free()
    assert await gateways[1].take()
    assert not await gateways[0].take()


@pytest.mark.parametrize("mode", ["gone", "silent"])
async def test_a_store_that_is_away_costs_a_few_calls_a_moment_and_the_rest_nothing(
    mode: Mode,
) -> None:
    _, shared, (gateway, _) = two_gateways()
    shared.mode = mode
    with capture_logs() as said:
        async with asyncio.timeout(FAILURES * CALL_S + 2):
            for _ in range(200):
                await gateway.take()
    assert shared.asked == FAILURES
    assert gateway.counters.is_away
    assert gateway.counters.sliced == 200
    assert [entry["event"] for entry in said] == ["counter_store_away"]


async def test_calls_that_meet_one_moment_of_silence_are_one_failure() -> None:
    clock, shared, (gateway, _) = two_gateways()
    shared.mode = "silent"
    clock.pass_(1.0)
    together = [asyncio.create_task(gateway.take()) for _ in range(20)]
    while shared.asked < 20:  # noqa: ASYNC110 - until all of them have asked
        await asyncio.sleep(0)
    clock.pass_(CALL_S)
    assert sum(await asyncio.gather(*together)) == slice_of(LIMIT)
    assert not gateway.counters.is_away
    shared.mode = "well"
    assert await gateway.take()


class Late(Shared):
    """A store that answers at once, to a gateway that has no time to listen."""

    def __init__(self, clock: ManualClock, times: int) -> None:
        super().__init__(clock)
        self._clock = clock
        self._times = times

    async def _reached(self) -> None:
        self.asked += 1
        if self.asked <= self._times:
            self._clock.pass_(10 * CALL_S)
            await asyncio.Event().wait()


@pytest.mark.parametrize(("times", "sliced"), [(1, 0), (2, 1)])
async def test_an_answer_that_is_late_because_we_were_is_asked_for_once_more(
    times: int, sliced: int
) -> None:
    clock = ManualClock()
    shared = Late(clock, times)
    gateway = Gateway("a", shared, clock)
    assert await gateway.take()
    assert (shared.asked, gateway.counters.sliced) == (2, sliced)


class Mute(Shared):
    """A store that does what it is asked and says nothing."""

    async def take(
        self, name: str, lease: str, *, limit: int, lasts_s: float, of_process: bool = False
    ) -> float | None:
        await self._leases.take(name, lease, limit=limit, lasts_s=lasts_s)
        return await super().take(name, lease, limit=limit, lasts_s=lasts_s)


async def test_what_is_refused_here_holds_nothing_there() -> None:
    clock = ManualClock()
    shared = Mute(clock)
    gateway = Gateway("a", shared, clock)
    await gateway.counters.renew([("ana", f"held-{n}") for n in range(3)], lasts_s=LASTS_S)
    shared.mode = "silent"
    with patch.object(shared, "free", shared._leases.free):
        assert not await gateway.take()
    shared.mode = "well"
    there = Gateway("b", shared, clock)
    assert sum([await there.take() for _ in range(LIMIT)]) == LIMIT - 3


async def test_without_a_store_each_gateway_lets_in_its_slice() -> None:
    _, shared, gateways = two_gateways()
    shared.mode = "gone"
    for gateway in gateways:
        taken = [await gateway.take() for _ in range(LIMIT)]
        assert sum(taken) == slice_of(LIMIT)
        gateway.free()
        assert await gateway.take()
        assert not await gateway.take()


async def test_what_a_gateway_let_in_before_counts_against_its_slice() -> None:
    _, shared, (full, other) = two_gateways()
    assert all([await full.take() for _ in range(LIMIT)])
    shared.mode = "gone"
    assert not any([await full.take() for _ in range(LIMIT)])
    assert sum([await other.take() for _ in range(LIMIT)]) == slice_of(LIMIT)


async def test_a_store_that_is_back_is_found_by_a_renewal_and_told_of_everything() -> None:
    clock, shared, gateways = two_gateways()
    shared.mode = "gone"
    for gateway in gateways:
        while await gateway.take():
            pass
        while not gateway.counters.is_away:
            await gateway.take()
    shared.mode = "well"
    assert not await gateways[0].take(), "nobody's call is the probe"
    with capture_logs() as said:
        for gateway in gateways:
            clock.pass_(1.0)
            await gateway.renew()
    assert [entry["event"] for entry in said] == ["counter_store_back"] * 2
    in_use = 2 * slice_of(LIMIT)
    taken = [await gateway.take() for gateway in gateways * LIMIT]
    assert sum(taken) == LIMIT - in_use


async def test_a_store_that_stays_away_is_asked_once_a_second_however_long_it_takes() -> None:
    clock, shared, (gateway, _) = two_gateways()
    shared.mode = "gone"
    while not gateway.counters.is_away:
        await gateway.take()
    asked = shared.asked
    for _ in range(60):
        clock.pass_(1.0)
        await gateway.renew()
    assert shared.asked - asked == 60
    await gateway.renew()
    assert shared.asked - asked == 60, "the pause is not over"


async def test_a_name_that_is_forgotten_is_so_here_and_there() -> None:
    _, shared, (here, there) = two_gateways()
    assert all([await here.take() for _ in range(LIMIT)])
    here.counters.forget("ana")
    assert await there.take()
    shared.mode = "gone"
    assert await here.take()


STEPS = st.lists(
    st.tuples(st.sampled_from(["take", "take", "take", "free", "renew", "well", "gone"]),
              st.integers(0, 2)),
    max_size=120,
)  # fmt: skip


@given(STEPS)
def test_whatever_happens_nobody_has_more_than_the_limit_and_the_slices(
    steps: list[tuple[str, int]],
) -> None:
    async def run() -> None:
        clock = ManualClock()
        shared = Shared(clock)
        gateways = [Gateway(name, shared, clock) for name in "abc"]
        for what, number in steps:
            gateway = gateways[number]
            if what == "take":
                await gateway.take()
            elif what == "free":
                gateway.free()
            elif what == "renew":
                clock.pass_(1.0)
                await gateway.renew()
            else:
                shared.mode = "well" if what == "well" else "gone"
            held = sum(len(gateway.held) for gateway in gateways)
            assert held <= LIMIT + len(gateways) * slice_of(LIMIT)

    with patch.object(module, "_log"):
        asyncio.run(run())
