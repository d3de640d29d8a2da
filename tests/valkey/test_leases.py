"""Leases of a process that died: whoever needs the room has it, and nobody loses what is in use."""

from __future__ import annotations

import pytest

from tertulia.drills.valkey_server import ValkeyServer
from tertulia.ports import Leases
from tests.valkey.conftest import Open

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


async def taken(leases: Leases, lease: str, *, of_process: bool = True) -> bool:
    wait_s = await leases.take("ana", lease, limit=2, lasts_s=60.0, of_process=of_process)
    return wait_s is None


def dies(server: ValkeyServer, life: bytes) -> None:
    """Its last word of life ends, as it does some seconds after a kill."""
    assert server.command("DEL", life) == 1


@pytest.mark.parametrize("of_process", [True, False])
async def test_what_a_dead_process_held_makes_room_unless_it_was_to_outlive_it(
    own_server: ValkeyServer, opened: Open, of_process: bool
) -> None:
    here = (await opened(own_server.url)).leases
    await here.renew([], lasts_s=60.0)
    (life,) = own_server.command("KEYS", "tertulia:process:*")
    for lease in ("first", "second"):
        assert await taken(here, lease, of_process=of_process)
    there = (await opened(own_server.url)).leases
    assert not await taken(there, "third"), "the other lives"
    dies(own_server, life)
    assert await taken(there, "third") == of_process
    assert await taken(there, "fourth") == of_process
    assert not await taken(there, "fifth")


async def test_a_process_that_was_only_silent_has_its_leases_back(
    own_server: ValkeyServer, opened: Open
) -> None:
    here = (await opened(own_server.url)).leases
    for lease in ("first", "second"):
        assert await taken(here, lease)
    (life,) = own_server.command("KEYS", "tertulia:process:*")
    dies(own_server, life)
    there = (await opened(own_server.url)).leases
    assert await taken(there, "third")
    await here.renew([("ana", "first"), ("ana", "second")], lasts_s=60.0)
    for lease in ("third", "fourth"):
        there.free("ana", lease)
    assert not await taken(there, "fifth"), "both of the other's are in use"
