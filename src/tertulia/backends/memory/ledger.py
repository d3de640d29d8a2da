"""The ledger in memory: what its balances have to be, by its settlements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tertulia.backends.memory.store import MemoryStore
from tertulia.core.quota import drifts, rebuilt
from tertulia.core.types import Balance, Drift


class MemoryLedger:
    """The `Ledger` port."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def owners(self, *, after: str, limit: int) -> Sequence[str]:
        """Everybody who was ever settled, by id."""
        owners = sorted({owner for owner, _, _ in self._store.settlements if owner > after})
        return tuple(owners[:limit])

    async def check(self, owner: str) -> Mapping[str, Drift]:
        """The balances that are not what the settlements say."""
        return drifts(self._store.balances.get(owner, {}), self._due(owner))

    async def rebuild(self, owner: str) -> Mapping[str, Drift]:
        """The same, and they are what the settlements say afterwards."""
        found = await self.check(owner)
        self._store.balances[owner] = self._due(owner)
        return found

    def _due(self, owner: str) -> dict[str, Balance]:
        settlements = [
            settled.settlement
            for settled in self._store.settlements.values()
            if settled.owner == owner
        ]
        return rebuilt(sorted(settlements, key=lambda settlement: settlement.at_ms))
