"""Which replicas are set aside, in Valkey: one hash of names. Losing it sets none aside."""

from __future__ import annotations

from typing import Final

from tertulia.backends.valkey.client import Client
from tertulia.backends.valkey.scripts import script
from tertulia.core.fleet import MOST_HELD

_HOLD: Final = script("hold")

_KEY: Final = "tertulia:holds"
# It is asked every second: one that is late is followed by the next.
_BUDGET_S: Final = 0.5


class ValkeyHolds:
    """The `Holds` port."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def names(self) -> frozenset[str]:
        """Those that are held."""
        kept: list[bytes] = await self._client.call(_KEY, "HKEYS", _KEY, budget_s=_BUDGET_S)
        return frozenset(name.decode(errors="replace") for name in kept)

    async def hold(self, name: str) -> bool:
        """Sets one aside, if there is room to remember it."""
        taken: int = await self._client.run(_HOLD, [_KEY], name, MOST_HELD, budget_s=_BUDGET_S)
        return taken == 1

    async def let_go(self, name: str) -> None:
        """It gets work again."""
        await self._client.call(_KEY, "HDEL", _KEY, name, budget_s=_BUDGET_S)
