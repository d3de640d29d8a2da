"""Leases in one process: all of them where there is one gateway, its own where there are more."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from tertulia.ports import Clock

# About 20 MB. Whoever tries from so many addresses attacks our memory: the names that were touched
# longest ago are forgotten, and those of open streams, which are renewed, are not among them.
_LEASES = 100_000


class MemoryLeases:
    """The `Leases` port. Invariants: the name that was touched longest ago is the first, no name is
    empty, and `_count` is the number of leases."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: OrderedDict[str, dict[str, float]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    async def take(
        self,
        name: str,
        lease: str,
        *,
        limit: int,
        lasts_s: float,
        of_process: bool = False,  # noqa: ARG002  # here all are
    ) -> float | None:
        """None: it is held. Else in how many seconds there is a place. All of them are over with
        the process."""
        assert limit > 0, limit
        now = self._clock.now()
        self._end_old(name, now)
        held = self._ends.get(name, {})
        if lease not in held and len(held) >= limit:
            return sorted(held.values())[len(held) - limit] - now
        self._hold(name, lease, now + lasts_s)
        return None

    async def renew(self, held: Sequence[tuple[str, str]], *, lasts_s: float) -> None:
        """All of them are held from now on."""
        until = self._clock.now() + lasts_s
        for name, lease in held:
            self._hold(name, lease, until)

    def free(self, name: str, lease: str) -> None:
        """Ends one, if it is there."""
        held = self._ends.get(name, {})
        if held.pop(lease, None) is not None:
            self._count -= 1
            if not held:
                del self._ends[name]

    def forget(self, name: str) -> None:
        """Ends all of the name's."""
        self._count -= len(self._ends.pop(name, {}))

    def _hold(self, name: str, lease: str, until: float) -> None:
        held = self._ends.setdefault(name, {})
        self._ends.move_to_end(name)
        self._count += lease not in held
        held[lease] = until
        while self._count > _LEASES and len(self._ends) > 1:
            self.forget(next(iter(self._ends)))

    def _end_old(self, name: str, now: float) -> None:
        for lease, until in list(self._ends.get(name, {}).items()):
            if until <= now:
                self.free(name, lease)
