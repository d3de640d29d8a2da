"""The ladder's rung in one process: for the embedded default, which has one gateway and worker."""

from __future__ import annotations

from tertulia.core.ladder import Foothold, may_step
from tertulia.core.load import TOLD_S, Sight
from tertulia.ports import Clock


class MemoryRungs:
    """The `Rungs` port."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rung = 0
        self._changes = 0
        self._stepped_at = clock.now()
        self._sights: dict[str, tuple[Sight, float]] = {}

    async def tell(self, name: str, sight: Sight) -> tuple[Foothold, tuple[Sight, ...]]:
        """Replaces what was told under the name; the foothold, and what is told now, by name."""
        now = self._clock.now()
        self._sights[name] = (sight, now)
        for teller, (_, told_at) in list(self._sights.items()):
            if now - told_at > TOLD_S:
                del self._sights[teller]
        told = tuple(self._sights[teller][0] for teller in sorted(self._sights))
        return self._foothold(), told

    async def step(self, seen: Foothold, to: int) -> Foothold:
        """Takes the step if it is still one."""
        if may_step(self._foothold(), seen=seen, to=to):
            self._rung = to
            self._changes += 1
            self._stepped_at = self._clock.now()
        return self._foothold()

    def _foothold(self) -> Foothold:
        return Foothold(self._rung, self._clock.now() - self._stepped_at, self._changes)
