"""Promises to those who were refused: in one process and in Valkey the same, for every gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pytest

from tertulia.backends.memory.promises import MemoryPromises
from tertulia.backends.valkey import ValkeyBackend
from tertulia.core.returns import AIM, GRACE_S, LONGEST_S, SHORTEST_S
from tertulia.core.types import Lane
from tertulia.drills.servers import ServerFailed
from tertulia.drills.valkey_server import ValkeyServers
from tertulia.ports import Promises
from tests.conformance.world import VALKEYS, ManualClock

pytestmark = pytest.mark.anyio

LIMIT_S = 10.0
KEPT_S = 15.0
PER_S = 2.0
NEAR_S = 1.0  # a server's clock runs on while a test asks


@dataclass
class Gateways:
    """What was promised, as two gateways have it. `pass_` makes all of it so much older."""

    here: Promises
    there: Promises
    pass_: Callable[[float], None]

    async def ask(
        self, owner: str, wait_s: float, lane: Lane = Lane.FREE, pool: str = ""
    ) -> float | None:
        return await self.here.ask(
            lane,
            owner,
            pool=pool,
            wait_s=wait_s,
            limit_s=LIMIT_S,
            kept_s=KEPT_S,
            starts_per_s=PER_S,
        )

    async def ask_there(self, owner: str, wait_s: float) -> float | None:
        return await self.there.ask(
            Lane.FREE, owner, wait_s=wait_s, limit_s=LIMIT_S, kept_s=KEPT_S, starts_per_s=PER_S
        )

    async def refused(self, owner: str, wait_s: float = LIMIT_S + 1) -> float:
        told = await self.ask(owner, wait_s)
        assert told is not None
        return told


@pytest.fixture(params=("memory", *VALKEYS))
async def gateways(
    request: pytest.FixtureRequest, anyio_backend: str, clock: ManualClock
) -> AsyncIterator[Gateways]:
    if request.param == "memory":
        promises = MemoryPromises(clock)
        yield Gateways(promises, promises, clock.pass_)
        return
    name = "valkey_cluster" if request.param == "valkey-cluster" else "valkey_server"
    servers: ValkeyServers = request.getfixturevalue(name)
    for server in servers.servers:
        server.command("FLUSHALL")
    here, there = [await ValkeyBackend.open(servers.urls, budget_s=5.0) for _ in range(2)]
    yield Gateways(here.promises, there.promises, lambda seconds: _age(servers, seconds))
    await here.close()
    await there.close()


def _age(servers: ValkeyServers, seconds: float) -> None:
    key = "tertulia:promises:{free}"
    for server in servers.servers:
        with suppress(ServerFailed):  # it is another's key
            due = server.command("ZRANGE", key, "0", "-1", "WITHSCORES")
            for owner, at in zip(due[::2], due[1::2], strict=True):
                server.command("ZADD", key, repr(float(at) - seconds * 1000), owner)
            for name in ("booked", "last"):
                if server.command("HEXISTS", f"{key}:state", name):
                    server.command("HINCRBY", f"{key}:state", name, str(int(-seconds * 1000)))


async def test_whoever_need_not_wait_too_long_comes_in(gateways: Gateways) -> None:
    assert await gateways.ask("ana", LIMIT_S) is None


async def test_the_refused_come_back_one_after_the_other(gateways: Gateways) -> None:
    told = [await gateways.refused(f"u{n}") for n in range(5)]
    first = LIMIT_S + 1 - AIM * LIMIT_S
    assert told == [pytest.approx(first + (n + 1) / PER_S, abs=NEAR_S) for n in range(5)]
    assert told == sorted(told)


async def test_a_promise_is_kept_at_another_gateway_and_once(gateways: Gateways) -> None:
    for n in range(40):
        await gateways.refused(f"u{n}")
    due = await gateways.refused("u0")
    gateways.pass_(due)
    assert await gateways.ask_there("new", AIM * LIMIT_S) is not None
    assert await gateways.ask_there("u0", AIM * LIMIT_S) is None
    assert await gateways.ask("u0", AIM * LIMIT_S) is not None


async def test_who_comes_back_when_told_may_wait_longer_than_a_newcomer(
    gateways: Gateways,
) -> None:
    due = await gateways.refused("ana")
    gateways.pass_(due)
    assert await gateways.ask("new", KEPT_S) is not None
    assert await gateways.ask("ana", KEPT_S) is None


async def test_asking_again_too_soon_gives_the_same_moment(gateways: Gateways) -> None:
    first = await gateways.refused("ana")
    for n in range(30):
        await gateways.refused(f"u{n}")
    again = await gateways.ask_there("ana", LIMIT_S)
    assert again == pytest.approx(first, abs=NEAR_S)


async def test_who_is_early_still_comes_in_when_the_line_is_short(gateways: Gateways) -> None:
    await gateways.refused("ana", LIMIT_S + 20)
    assert await gateways.ask("ana", 0.5) is None


async def test_a_promise_that_the_line_can_not_keep_is_made_anew(gateways: Gateways) -> None:
    due = await gateways.refused("ana")
    gateways.pass_(due)
    again = await gateways.refused("ana", 2 * LIMIT_S)
    assert again == pytest.approx(2 * LIMIT_S - AIM * LIMIT_S + 1 / PER_S, abs=NEAR_S)


async def test_places_that_nobody_takes_are_given_away(gateways: Gateways) -> None:
    for n in range(60):
        await gateways.refused(f"u{n}")
    assert await gateways.ask("new", 0.8 * LIMIT_S) is not None
    gateways.pass_(60 / PER_S + LIMIT_S + GRACE_S + 2)
    assert await gateways.ask("new", 1.0) is None
    told = [await gateways.refused(f"v{n}") for n in range(2)]
    assert told[1] - told[0] < 0.9 / PER_S  # not all of them will come either


async def test_what_lies_too_far_ahead_is_not_promised_but_spread(gateways: Gateways) -> None:
    told = [await gateways.refused(f"u{n}", 10 * LONGEST_S) for n in range(20)]
    assert all(LONGEST_S <= one < 2 * LONGEST_S for one in told)
    assert len(set(told)) == 20
    assert _rounded(told) == _rounded([await gateways.refused(f"u{n}", 1e5) for n in range(20)])


async def test_lanes_have_nothing_to_do_with_each_other(gateways: Gateways) -> None:
    for n in range(40):
        await gateways.refused(f"u{n}")
    assert await gateways.ask("new", 0.8 * LIMIT_S) is not None
    assert await gateways.ask("new", 0.8 * LIMIT_S, Lane.PLUS) is None


async def test_nobody_is_sent_away_for_less_than_a_second(gateways: Gateways) -> None:
    told = await gateways.here.ask(
        Lane.FREE, "ana", wait_s=0.2, limit_s=0.1, kept_s=0.1, starts_per_s=1_000.0
    )
    assert told == pytest.approx(SHORTEST_S, abs=0.01)


def _rounded(told: Sequence[float]) -> list[float]:
    return [round(one, 1) for one in told]


async def test_promises_of_one_pool_change_nothing_in_another(gateways: Gateways) -> None:
    first = await gateways.refused("ana")
    for n in range(50):
        assert await gateways.ask(f"user{n}", LIMIT_S + 1, pool="large{0}") is not None
    told = await gateways.ask("ben", LIMIT_S + 1)
    assert told is not None
    assert told - first <= 2 / PER_S + NEAR_S
    assert await gateways.ask("eva", 0.1, pool="other}") is None
