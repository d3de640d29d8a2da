"""Wakes sleepers within one process. It carries no news: whoever wakes looks for themselves."""

from __future__ import annotations

import asyncio
import math
from typing import Final

# Rings that nobody waited for are remembered for the next waiter, for this many topics at most;
# the oldest is forgotten first, and its waiter sleeps until its time-out.
REMEMBERED_TOPICS: Final = 1024
# A time-out of sleepers may be so late: a timer for each costs more than all else of a short sleep,
# and one for all that is set anew for each of a thousand costs as much.
_LATE_S: Final = 0.02
# A loop's timer may ring a trifle early, as its own clock is coarser.
_EARLY_S: Final = 0.001


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
    """Futures by topic: everyone who sleeps on a topic wakes together, or by their own time-out.

    One timer serves them all. Invariant: it rings at `_rings_at`, which is at most `_LATE_S` after
    the time of whoever sleeps. All of them belong to one event loop.
    """

    def __init__(self) -> None:
        # In the order in which they fell asleep: a replayed simulation wakes them the same way.
        self._by_topic: dict[str, dict[asyncio.Future[None], float]] = {}
        self._alarm: asyncio.TimerHandle | None = None
        self._rings_at = math.inf

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
        sleeper, until = loop.create_future(), loop.time() + max(0.0, timeout_s)
        self._by_topic.setdefault(topic, {})[sleeper] = until
        if until < self._rings_at:
            self._set_alarm(loop, until)
        try:
            await sleeper
        finally:
            sleepers = self._by_topic.get(topic)
            if sleepers is not None:
                sleepers.pop(sleeper, None)
                if not sleepers:
                    del self._by_topic[topic]

    def _set_alarm(self, loop: asyncio.AbstractEventLoop, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._rings_at = loop.call_at(at, self._ring, loop), at

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ends what is due, and sets the alarm for those who sleep on."""
        self._alarm, self._rings_at = None, math.inf
        now, next_at = loop.time(), math.inf
        for sleepers in self._by_topic.values():
            for sleeper, until in sleepers.items():
                if until <= now + _EARLY_S:
                    _end(sleeper)
                else:
                    next_at = min(next_at, until)
        if next_at < math.inf:
            self._set_alarm(loop, max(next_at, now + _LATE_S))


def _end(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
