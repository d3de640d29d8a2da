"""Whose prefix a region still has in its caches, after something has emptied some of them.

Nothing is kept of whom nothing was lost: all begin warm, as in a fleet that has run for long.
"""

from __future__ import annotations

from typing import Final

from tertulia.simulator.people import spread

# Losses that are remembered; a scenario has fewer.
_MOST: Final = 2_000


class Warmth:
    """Invariant: once something was lost, whoever asks is noted with the moment."""

    def __init__(self) -> None:
        self._losses: list[tuple[float, float, float]] = []
        self._seen: dict[int, float] = {}

    def lose(self, now: float, begin: float, end: float) -> None:
        """The caches of the part of all people from `begin` to `end` (of 1) are gone."""
        assert 0.0 <= begin <= end, (begin, end)
        assert len(self._losses) < _MOST
        self._losses.append((now, begin, end))

    def is_cold(self, owner: int, now: float, *, is_at_home: bool) -> bool:
        """Whether the prompt must be read whole; from now on it is warm."""
        if not self._losses and is_at_home:
            return False
        last = self._seen.get(owner)
        self._seen[owner] = now
        if last is None and not is_at_home:
            return True
        since = -1.0 if last is None else last
        part = spread(owner)
        return any(at >= since and begin <= part < end for at, begin, end in self._losses)
