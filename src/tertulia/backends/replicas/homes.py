"""The table of homes, as it is used in mid-turn: read with little patience, written behind.

It may know nothing or be late, and never makes a turn fail.
"""

from __future__ import annotations

import asyncio

from tertulia.core.fleet import Home
from tertulia.ports import Homes, StoreUnavailable

# A look-up takes a fraction of a millisecond; without an answer by then, the conversation's own
# order of the replicas is nearly as good.
_PATIENCE_S = 0.05
# Moves that wait to be written. One for each turn that ends: far more than wait at any moment.
_WAITING = 4_096


class HomeTable:
    """Invariant: `_moved` are the moves that are not written yet, the oldest first."""

    def __init__(self, homes: Homes) -> None:
        self._homes = homes
        self._moved: dict[str, Home] = {}
        self._has_moved = asyncio.Event()

    async def find(self, conversation: str) -> Home | None:
        """The home, as far as anybody knows."""
        if conversation in self._moved:
            return self._moved[conversation]
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await self._homes.find(conversation)
        except (StoreUnavailable, TimeoutError):
            return None

    def move(self, conversation: str, home: Home) -> None:
        """Notes a move, to be written soon."""
        self._moved.pop(conversation, None)
        self._moved[conversation] = home
        if len(self._moved) > _WAITING:
            del self._moved[next(iter(self._moved))]
        self._has_moved.set()

    async def run(self) -> None:
        """Writes what was moved, until cancelled."""
        while True:
            await self._has_moved.wait()
            self._has_moved.clear()
            while self._moved:
                conversation, home = next(iter(self._moved.items()))
                try:
                    await self._homes.move(conversation, home)
                except StoreUnavailable:
                    self._moved.clear()  # hints: nothing of it is worth trying for long
                    break
                if self._moved.get(conversation) is home:
                    del self._moved[conversation]
