"""Virtual time: what happens next, in the order of its moments. It never looks at a real clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable

# A scenario that plans more than this at once has lost count of what it plans.
MOST_PLANNED = 20_000_000


class Clock:
    """Runs what was planned, in order; of one moment, what was planned first.

    Invariant: `now` never goes back, and nothing that is planned lies before it.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._n = 0

    def at(self, when: float, happens: Callable[[], None]) -> None:
        """Plans it for a moment in seconds, for now if that is past."""
        assert len(self._planned) < MOST_PLANNED
        self._n += 1
        heapq.heappush(self._planned, (max(when, self.now), self._n, happens))

    def every(self, seconds: float, happens: Callable[[], None]) -> None:
        """Plans it again and again, the first time `seconds` from now."""
        assert seconds > 0, seconds

        def again() -> None:
            self.at(self.now + seconds, again)
            happens()

        self.at(self.now + seconds, again)

    def run(self, until: float) -> None:
        """Lets everything happen that lies before `until`, which is then now."""
        planned = self._planned
        while planned and planned[0][0] < until:
            self.now, _, happens = heapq.heappop(planned)
            happens()
        self.now = until
