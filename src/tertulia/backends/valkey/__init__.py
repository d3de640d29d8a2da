"""A fleet's second store: logs, bell, homes, holds, registry, promises, rung, leases.

All of it may be lost.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Final

from tertulia.backends.clock import SystemClock
from tertulia.backends.valkey.bell import ValkeyBell
from tertulia.backends.valkey.client import Client
from tertulia.backends.valkey.holds import ValkeyHolds
from tertulia.backends.valkey.homes import ValkeyHomes
from tertulia.backends.valkey.leases import ValkeyLeases
from tertulia.backends.valkey.log import ValkeyLog
from tertulia.backends.valkey.node import UnfitServer
from tertulia.backends.valkey.promises import ValkeyPromises
from tertulia.backends.valkey.registry import ValkeyRegistry
from tertulia.backends.valkey.rungs import ValkeyRungs
from tertulia.core.turn import LOG_KEPT_S
from tertulia.ports import Clock

__all__ = ["UnfitServer", "ValkeyBackend"]

# What a caller waits for Valkey: longer than a restart or a short stall, half a lease.
BUDGET_S: Final = 1.0
_DICE: Final = secrets.SystemRandom()
_CLOCK: Final = SystemClock()


class ValkeyBackend:
    """All that a fleet keeps in Valkey, over the same connections. Use `open`."""

    def __init__(
        self,
        client: Client,
        *,
        log_kept_s: float,
        budget_s: float,
        replica_key: str | None,
        clock: Clock,
    ) -> None:
        self._client = client
        self.log = ValkeyLog(client, kept_s=log_kept_s, budget_s=budget_s)
        self.bell = ValkeyBell(client)
        self.homes = ValkeyHomes(client)
        self.holds = ValkeyHolds(client)
        self.promises = ValkeyPromises(client)
        self.rungs = ValkeyRungs(client)
        self.registry = ValkeyRegistry(client, key=replica_key, clock=clock)
        self.leases = ValkeyLeases(client)

    @classmethod
    async def open(
        cls,
        urls: Sequence[str],
        *,
        log_kept_s: float = LOG_KEPT_S,
        budget_s: float = BUDGET_S,
        replica_key: str | None = None,
        jitter: Callable[[], float] = _DICE.random,
        clock: Clock = _CLOCK,
    ) -> ValkeyBackend:
        """The servers at `urls`: one, the members of a failover pair, or some of a cluster.

        ValueError for a URL that is none; UnfitServer if a server is there that can't be used.
        Servers that can't be reached are looked for until they are. With a `replica_key` only
        replicas that have it too are found in the registry.
        """
        client = await Client.open(urls, patience_s=budget_s, jitter=jitter)
        return cls(
            client,
            log_kept_s=log_kept_s,
            budget_s=budget_s,
            replica_key=replica_key,
            clock=clock,
        )

    async def close(self) -> None:
        """Ends the connections."""
        await self._client.close()
