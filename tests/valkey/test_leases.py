"""What Valkey does to leases: keys end, and a server with another clock is not believed."""

from __future__ import annotations

import asyncio

import pytest

from tertulia.drills.valkey_server import ValkeyServer
from tertulia.ports import StoreUnavailable
from tests.valkey.conftest import Open

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

KEY = "tertulia:leases:{ana}"


async def test_nothing_is_left_of_leases_that_have_ended(
    server: ValkeyServer, opened: Open
) -> None:
    leases = (await opened(server.url)).leases
    await leases.take("ana", "first", limit=5, lasts_s=600)
    await leases.renew([("ana", "first")], lasts_s=300)
    assert 0 < server.command("PTTL", KEY) <= 300_000
    await leases.take("ana", "second", limit=5, lasts_s=600)
    assert 300_000 < server.command("PTTL", KEY) <= 600_000


async def test_a_place_by_a_clock_that_was_ahead_blocks_nobody_for_long(
    server: ValkeyServer, opened: Open
) -> None:
    """The server before a failover had another clock: its places would last for an hour more."""
    leases = (await opened(server.url)).leases
    seconds, _ = server.command("TIME")
    server.command("ZADD", KEY, str((int(seconds) + 3600) * 1000), "ahead")
    assert await leases.take("ana", "first", limit=1, lasts_s=15) is None


async def test_the_places_of_many_names_are_renewed_together(
    server: ValkeyServer, opened: Open
) -> None:
    leases = (await opened(server.url)).leases
    held = [(f"user-{n % 2500}", f"lease-{n}") for n in range(5000)]
    await leases.renew(held, lasts_s=60)
    assert server.command("DBSIZE") == 2500
    assert server.command("ZCARD", "tertulia:leases:{user-7}") == 2


async def test_freeing_at_a_server_that_is_gone_neither_waits_nor_fails(
    own_server: ValkeyServer, opened: Open
) -> None:
    leases = (await opened(own_server.url, budget_s=0.2)).leases
    own_server.kill()
    async with asyncio.timeout(2):
        with pytest.raises(StoreUnavailable):
            await leases.take("ana", "first", limit=1, lasts_s=15)
        leases.free("ana", "first")
        leases.forget("ana")
