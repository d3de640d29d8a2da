"""Where a replica reports itself: the fleet's registry, opened in the replica's own process."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tertulia.config import Settings
from tertulia.ports import Registry, StoreUnavailable
from tertulia.replica.main import Registration
from tertulia.replica.reporting import OpenRegistry
from tertulia.wiring.models import replica_key
from tertulia.wiring.stores import CantOpen, needs_extra


def registration(
    settings: Settings, *, name: str | None, url: str | None, pool: str
) -> Registration:
    """What a replica needs to register; CantOpen if the settings name no registry."""
    return Registration(_opener(settings), name, url, pool)


def _opener(settings: Settings) -> OpenRegistry:
    nodes = [node.get_secret_value() for node in settings.fleet.valkey]
    if not nodes:
        raise CantOpen("--register needs [fleet] with database and valkey in the settings")
    with needs_extra("--register"):
        from tertulia.backends.valkey import UnfitServer, ValkeyBackend

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Registry, None]:
        try:
            backend = await ValkeyBackend.open(nodes, replica_key=replica_key(settings))
        except (UnfitServer, ValueError) as error:
            raise StoreUnavailable(str(error)) from None  # no reason for the engine to end
        try:
            yield backend.registry
        finally:
            await backend.close()

    return opened
