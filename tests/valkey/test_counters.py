"""Limits over a Valkey that dies or goes deaf: nobody waits for it, and it is found again."""

from __future__ import annotations

import asyncio

import pytest

from tertulia.backends.clock import SystemClock
from tertulia.backends.memory.leases import MemoryLeases
from tertulia.core.breaker import FAILURES
from tertulia.core.slices import slice_of
from tertulia.drills.valkey_server import ValkeyServer
from tertulia.gateway.counters import CALL_S, Counters
from tests.valkey.conftest import Open
from tests.valkey.proxy import Proxy

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

LIMIT = 8
BACK_S = 10.0


async def takes(counters: Counters, mark: str, n: int) -> tuple[int, float]:
    """How many of `n` leases were taken, and the longest that one of them was waited for."""
    loop, taken, longest_s = asyncio.get_running_loop(), 0, 0.0
    for number in range(n):
        began = loop.time()
        wait_s = await counters.take("ana", f"{mark}-{number}", limit=LIMIT, lasts_s=60.0)
        longest_s = max(longest_s, loop.time() - began)
        taken += wait_s is None
    return taken, longest_s


async def until_back(counters: Counters) -> None:
    async with asyncio.timeout(BACK_S):
        while counters.is_away:
            await counters.renew([("ana", f"away-{n}") for n in range(2)], lasts_s=60.0)
            await asyncio.sleep(0.05)


async def let_in_by_slice(counters: Counters) -> int:
    """How many are let in while the store is away; nobody waits long for that."""
    taken, longest_s = await takes(counters, "away", 50)
    assert counters.is_away
    assert longest_s < 4 * CALL_S, "a busy machine may be late, but not by much"
    return taken


async def test_a_valkey_that_was_killed_is_not_waited_for_and_is_found_again(
    own_server: ValkeyServer, opened: Open
) -> None:
    counters = await counting(opened, own_server.url)
    own_server.kill()
    assert await let_in_by_slice(counters) == slice_of(LIMIT)
    own_server.start()
    await until_back(counters)
    taken, _ = await takes(counters, "back", 20)
    assert taken == LIMIT - slice_of(LIMIT)


async def test_a_valkey_that_went_deaf_is_not_waited_for_and_is_found_again(
    own_server: ValkeyServer, opened: Open
) -> None:
    async with Proxy(own_server.port) as proxy:
        counters = await counting(opened, proxy.url)
        proxy.deaf = True
        assert await let_in_by_slice(counters) == slice_of(LIMIT)
        assert counters.sliced >= 50 - FAILURES
        proxy.deaf = False
        await until_back(counters)
        assert (await takes(counters, "back", 20))[0] <= LIMIT


async def counting(opened: Open, url: str) -> Counters:
    """One gateway's counters, over a Valkey that answers now."""
    clock = SystemClock()
    counters = Counters((await opened(url)).leases, MemoryLeases(clock), clock)
    await counters.renew([("nobody", "first")], lasts_s=1.0)
    assert not counters.is_away
    return counters
