"""Counts tries per name or address in a sliding window. Memory is bounded: old names go first."""

from __future__ import annotations

from collections import OrderedDict, deque

from tertulia.gateway.problems import Problem
from tertulia.ports import Clock

# More names than this in one window is an attack on the memory; the oldest are forgotten.
_NAMES = 10_000


class Throttle:
    """At most `allowed` tries per name in any `window_s`."""

    def __init__(self, clock: Clock, *, allowed: int, window_s: float):
        self._clock = clock
        self._allowed = allowed
        self._window_s = window_s
        self._tries: OrderedDict[str, deque[float]] = OrderedDict()

    def demand(self, name: str) -> None:
        """Counts a try; Problem `too_many_requests` when there were too many."""
        now = self._clock.now()
        tries = self._tries.setdefault(name, deque())
        self._tries.move_to_end(name)
        while len(self._tries) > _NAMES:
            self._tries.popitem(last=False)
        while tries and tries[0] <= now - self._window_s:
            tries.popleft()
        if len(tries) >= self._allowed:
            wait_s = tries[0] + self._window_s - now
            sentence = "There were too many tries; wait a while and try again."
            raise Problem("too_many_requests", sentence, retry_after_s=wait_s)
        tries.append(now)

    def forgive(self, name: str) -> None:
        """Forgets the tries of a name that turned out to be right."""
        self._tries.pop(name, None)
