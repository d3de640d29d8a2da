"""Homes, holds and registry in one process: for the embedded default, one gateway and worker."""

from __future__ import annotations

from dataclasses import replace

from tertulia.core.fleet import FORGOTTEN_S, HOME_KEPT_S, MOST_HELD, Home, ReplicaReport
from tertulia.ports import Clock

# An hour's conversations of one machine. A home that was forgotten costs one prompt read anew.
_HOMES = 10_000


class MemoryHomes:
    """The `Homes` port. Invariant: the oldest move is the first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._homes: dict[str, tuple[Home, float]] = {}

    async def find(self, conversation_id: str) -> Home | None:
        """What was last moved, unless it is too long ago."""
        home, moved_at = self._homes.get(conversation_id, (None, 0.0))
        return home if self._clock.now() - moved_at <= HOME_KEPT_S else None

    async def move(self, conversation_id: str, home: Home) -> None:
        """Notes it; the oldest gives way."""
        self._homes.pop(conversation_id, None)
        self._homes[conversation_id] = (home, self._clock.now())
        if len(self._homes) > _HOMES:
            del self._homes[next(iter(self._homes))]


class MemoryHolds:
    """The `Holds` port."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    async def names(self) -> frozenset[str]:
        """Those that are held."""
        return frozenset(self._names)

    async def hold(self, name: str) -> bool:
        """Sets one aside, if there is room to remember it."""
        if name not in self._names and len(self._names) >= MOST_HELD:
            return False
        self._names.add(name)
        return True

    async def let_go(self, name: str) -> None:
        """It gets work again."""
        self._names.discard(name)


class MemoryRegistry:
    """The `Registry` port."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reports: dict[str, tuple[ReplicaReport, float]] = {}

    async def report(self, report: ReplicaReport) -> None:
        """Replaces what was reported under the name."""
        self._reports[report.name] = (report, self._clock.now())

    async def leave(self, name: str, incarnation: str) -> None:
        """Forgets this incarnation."""
        known = self._reports.get(name)
        if known is not None and known[0].incarnation == incarnation:
            del self._reports[name]

    async def reports(self) -> tuple[ReplicaReport, ...]:
        """Each with its age, by name."""
        now = self._clock.now()
        for name, (_, at) in list(self._reports.items()):
            if now - at > FORGOTTEN_S:
                del self._reports[name]
        return tuple(
            replace(report, age_s=now - at) for _, (report, at) in sorted(self._reports.items())
        )
