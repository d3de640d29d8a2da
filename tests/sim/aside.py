"""An engine with priorities in virtual time: of the turns that it was given those of the first
lanes hold its slots, and the others are put aside until one comes free."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from tertulia.core.types import Lane


@dataclass(eq=False, slots=True)
class _Run:
    place: tuple[Lane, int]
    left_s: float
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class PriorityEngine:
    """Invariant: `_active` hold a slot since `_since`; `_runs` are these and those put aside."""

    def __init__(self, now: Callable[[], float], n_slots: int) -> None:
        self._now, self._n_slots = now, n_slots
        self._runs: list[_Run] = []
        self._active: list[_Run] = []
        self._since = now()
        self._n_given = 0
        self._news = asyncio.Event()

    async def compute(self, lane: Lane, seconds: float) -> None:
        """Returns once a turn of this lane has held a slot for so long."""
        self._n_given += 1
        run = _Run((lane, self._n_given), seconds)
        self._runs.append(run)
        self._news.set()
        await run.ended.wait()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            soonest_s = min((run.left_s for run in self._active), default=None)
            self._news.clear()
            try:
                async with asyncio.timeout(soonest_s):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._pass_time()

    def _pass_time(self) -> None:
        now = self._now()
        for run in self._active:
            run.left_s -= now - self._since
            if run.left_s <= 1e-9:
                run.ended.set()
        self._since = now
        self._runs = [run for run in self._runs if not run.ended.is_set()]
        self._active = sorted(self._runs, key=lambda run: run.place)[: self._n_slots]
