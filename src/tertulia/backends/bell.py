"""Wakes sleepers within one process. It carries no news: whoever wakes looks for themselves."""

from __future__ import annotations

import asyncio
from typing import Final

# Rings that nobody waited for are remembered for the next waiter, for this many topics at most;
# the oldest is forgotten first, and its waiter sleeps until its time-out.
REMEMBERED_TOPICS: Final = 1024


class LocalBell:
    """A bell for the tasks of one event loop.

    A ring that meets no sleeper wakes the next one on that topic at once: a caller that looks,
    finds nothing and then waits does not miss a ring that came between the two.
    """

    def __init__(self) -> None:
        self._sleepers = Sleepers()
        self._rung: dict[str, None] = {}

    def ring(self, topic: str) -> None:
        """Wakes everyone who waits on `topic`. Must be called from the event loop's thread."""
        if self._sleepers.wake(topic):
            return
        self._rung.pop(topic, None)
        self._rung[topic] = None
        if len(self._rung) > REMEMBERED_TOPICS:
            del self._rung[next(iter(self._rung))]

    async def wait(self, topic: str, *, timeout_s: float) -> None:
        """Returns at a ring, or after `timeout_s`."""
        if topic in self._rung:
            del self._rung[topic]
            return
        await self._sleepers.sleep(topic, timeout_s=timeout_s)


class Sleepers:
    """Futures by topic: everyone who sleeps on a topic wakes together, or by their own time-out."""

    def __init__(self) -> None:
        # In the order in which they fell asleep: a replayed simulation wakes them the same way.
        self._by_topic: dict[str, dict[asyncio.Future[None], None]] = {}

    def wake(self, topic: str) -> int:
        """Wakes all who sleep on `topic`; how many there were."""
        sleepers = self._by_topic.pop(topic, None)
        if not sleepers:
            return 0
        for sleeper in sleepers:
            _end(sleeper)
        return len(sleepers)

    async def sleep(self, topic: str, *, timeout_s: float) -> None:
        """Returns when `topic` is woken, or after `timeout_s`."""
        loop = asyncio.get_running_loop()
        sleeper = loop.create_future()
        self._by_topic.setdefault(topic, {})[sleeper] = None
        alarm = loop.call_later(max(0.0, timeout_s), _end, sleeper)
        try:
            await sleeper
        finally:
            alarm.cancel()
            sleepers = self._by_topic.get(topic)
            if sleepers is not None:
                sleepers.pop(sleeper, None)
                if not sleepers:
                    del self._by_topic[topic]


def _end(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
