"""Counts tries per name or address in a sliding window, over all gateways.

A try is a lease that is never renewed. What is counted is kept as a hash: nobody who looks into the
store reads who tried, and a long or odd name is a key like any other.
"""

from __future__ import annotations

import hashlib

from tertulia.gateway.counters import Counters
from tertulia.gateway.problems import Problem
from tertulia.ports import NewId


class Throttle:
    """At most `allowed` tries per name in any `window_s`. `what` keeps it apart from others."""

    def __init__(
        self, counters: Counters, new_id: NewId, what: str, *, allowed: int, window_s: float
    ):
        self._counters = counters
        self._new_id = new_id
        self._what = what
        self._allowed = allowed
        self._window_s = window_s

    async def demand(self, name: str) -> str:
        """Counts a try and names it; Problem `too_many_requests` when there were too many."""
        tried = self._new_id("try")
        wait_s = await self._counters.take(
            self._key(name), tried, limit=self._allowed, lasts_s=self._window_s
        )
        if wait_s is not None:
            sentence = "There were too many tries; wait a while and try again."
            raise Problem("too_many_requests", sentence, retry_after_s=wait_s)
        return tried

    def take_back(self, name: str, tried: str) -> None:
        """This one try was right and does not count; those before it do."""
        self._counters.free(self._key(name), tried)

    def forgive(self, name: str) -> None:
        """Forgets all tries of a name that turned out to be right."""
        self._counters.forget(self._key(name))

    def _key(self, name: str) -> str:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{self._what}:{digest}"
