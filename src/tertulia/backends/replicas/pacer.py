"""Reads the connections of running generations in turn, many in one tick of one timer.

A connection that waits here is not in the event loop's poll: it costs one system call per pace,
and nothing between two of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

# Ticks of one pace. More would spread the work more evenly; fewer would let more appends travel
# together. At a thousand replies each tick has a hundred.
TICKS: Final = 10


class Pacer:
    """A ring of ticks; each pace every one of them comes once.

    Invariant: while anybody waits the timer runs.
    """

    def __init__(self, pace_s: float) -> None:
        assert pace_s > 0
        self._tick_s = pace_s / TICKS
        self._ring: list[list[Callable[[], None]]] = [[] for _ in range(TICKS)]
        self._next = 0
        self._next_at = 0.0
        self._waiting = 0
        self.runs = False

    def later(self, read: Callable[[], None]) -> None:
        """Calls `read`, which must not raise, after one pace (or up to a tick less)."""
        self._ring[self._next - 1].append(read)
        self._waiting += 1
        if not self.runs:
            self.runs = True
            self._next_at = asyncio.get_running_loop().time()
            self._wind()

    def _wind(self) -> None:
        loop = asyncio.get_running_loop()
        # A loop that was held up does not make up for lost ticks.
        self._next_at = max(self._next_at + self._tick_s, loop.time())
        loop.call_at(self._next_at, self._tick)

    def _tick(self) -> None:
        due, self._ring[self._next] = self._ring[self._next], []
        self._next = (self._next + 1) % TICKS
        self._waiting -= len(due)
        for read in due:
            read()
        # Who was just read comes back in this turn of the event loop: look once more.
        self.runs = bool(self._waiting or due)
        if self.runs:
            self._wind()
