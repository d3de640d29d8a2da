"""Whose streams may stay open: what the store says of credentials, and what its silence means."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tertulia.backends.memory import MemoryBackend
from tertulia.backends.memory.api_keys import MemoryApiKeys
from tertulia.backends.memory.leases import MemoryLeases
from tertulia.backends.memory.store import MemoryStore
from tertulia.core.types import ApiKey, User
from tertulia.gateway.caller import Caller
from tertulia.gateway.counters import Counters
from tertulia.gateway.streams import OpenStreams
from tertulia.ports import StoreUnavailable
from tests.conformance.world import ManualClock

pytestmark = pytest.mark.anyio

ANA = User("u_ana", "ana", "user", "free", None, 0.0)
BEN = User("u_ben", "ben", "user", "free", None, 0.0)


class SomeLooks(ManualClock):
    """Lets so many looks happen and then ends the duty."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.left = looks

    async def sleep(self, seconds: float) -> None:
        self.left -= 1
        if not self.left:
            raise asyncio.CancelledError


class Keys(MemoryApiKeys):
    """Counts what it is asked, and answers nothing while it is away."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.is_away = False
        self.asked: list[tuple[str, ...]] = []

    async def alive(self, secret_hashes: Sequence[str]) -> frozenset[str]:
        self.asked.append(tuple(sorted(secret_hashes)))
        if self.is_away:
            raise StoreUnavailable("away")
        return await super().alive(secret_hashes)


class World:
    """Two callers with open streams, and the store that knows their keys."""

    def __init__(self) -> None:
        self.backend = MemoryBackend(ManualClock())
        self.keys = Keys(self.backend.store)
        leases = MemoryLeases(ManualClock())
        self.streams = OpenStreams(Counters(leases, leases, ManualClock()))
        self.ana, self.ben = Caller(ANA, "hash-ana"), Caller(BEN, "hash-ben")

    async def open(self) -> None:
        for user, caller in ((ANA, self.ana), (BEN, self.ben)):
            await self.backend.accounts.add(user)
            key = ApiKey(f"key_{user.name}", user.id, "laptop", "tk_", caller.credential, 0.0)
            await self.keys.add(key)
            self.streams.listens(caller)

    async def look(self, times: int) -> tuple[bool, bool]:
        """Whether Ana and Ben may listen after so many looks."""
        with pytest.raises(asyncio.CancelledError):
            await self.streams.recheck(self.backend.sessions, self.keys, SomeLooks(times))
        return self.streams.may_listen(self.ana), self.streams.may_listen(self.ben)


async def test_all_credentials_are_asked_for_at_once_and_only_while_they_listen() -> None:
    world = World()
    await world.open()
    world.streams.listens(world.ana)
    assert await world.look(1) == (True, True)
    world.streams.left(world.ana)
    world.streams.left(world.ben)
    await world.look(1)
    world.streams.left(world.ana)
    await world.look(1)
    assert world.keys.asked == [("hash-ana", "hash-ben"), ("hash-ana",)]


async def test_whose_key_is_revoked_listens_no_more() -> None:
    world = World()
    await world.open()
    await world.keys.revoke("u_ana", "key_ana")
    assert world.streams.may_listen(world.ana)
    assert await world.look(1) == (False, True)


async def test_listeners_stay_while_the_store_is_away_but_not_for_ever() -> None:
    world = World()
    await world.open()
    world.keys.is_away = True
    assert await world.look(4) == (True, True)
    assert await world.look(1) == (False, False)
    world.keys.is_away = False
    assert await world.look(1) == (True, True)


async def test_who_was_refused_stays_refused_while_the_store_is_away() -> None:
    world = World()
    await world.open()
    await world.keys.revoke("u_ana", "key_ana")
    assert await world.look(1) == (False, True)
    world.keys.is_away = True
    assert await world.look(2) == (False, True)
