"""How the fleet is and has been for half an hour, as this gateway sees it: one look for all.

It asks no store and waits for nobody: every figure is one that something else keeps already.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tertulia.core.fleet import ReplicaSight
from tertulia.core.types import Lane
from tertulia.gateway.figures import Figures
from tertulia.gateway.line import LineWatch
from tertulia.lookout import Lookout
from tertulia.ports import Clock
from tertulia.ports_of_operations import Fleet

# As often as the ladder is looked at; people see no faster change than this.
BEAT_S: Final = 2.0
# Half an hour.
_POINTS: Final = 900
# A ladder that changes more often than this in half an hour is at fault, and the newest say so.
_STEPS: Final = 100


@dataclass(frozen=True, slots=True)
class Point:
    """One look. Seconds, and None for what is not known."""

    at: float
    queued: int
    running: int
    tokens_per_s: float | None
    first_text_s: float | None  # the 95th percentile of the last minutes
    gap_s: float | None  # likewise
    rung: int
    load: float | None  # as it would be on the rung's foot


@dataclass(frozen=True, slots=True)
class RungStep:
    """When a rung was first seen to hold."""

    at: float
    rung: int


class Pulse:
    """The looks of the last half hour. Invariant: `past` and `steps` are bounded, oldest first."""

    def __init__(
        self, fleet: Fleet, line: LineWatch, lookout: Lookout, figures: Figures, clock: Clock
    ) -> None:
        self.past: deque[Point] = deque(maxlen=_POINTS)
        self.steps: deque[RungStep] = deque(maxlen=_STEPS)
        self.sights: Sequence[ReplicaSight] = ()
        self.rates: Mapping[str, float] = {}  # tokens a second, by replica
        self.n_beats = 0
        self._fleet = fleet
        self._line = line
        self._lookout = lookout
        self._figures = figures
        self._clock = clock
        self._generated: dict[str, tuple[float, float]] = {}  # by replica: tokens, when
        self._beaten = asyncio.Event()

    async def run(self) -> None:
        """Looks every two seconds until cancelled."""
        while True:
            self.beat()
            await self._clock.sleep(BEAT_S)

    async def wait(self, seen: int) -> None:
        """Returns when there was a look after the number `seen`, or should have been two."""
        try:
            async with asyncio.timeout(2 * BEAT_S):
                while self.n_beats <= seen:
                    await self._beaten.wait()
        except TimeoutError:
            return

    def beat(self) -> None:
        """One look."""
        now = self._clock.now()
        self.sights = self._fleet.sights()
        self.rates = self._rates(now)
        lanes = [self._line.lane(lane) for lane in Lane]
        rung, load = self._lookout.foothold.rung, self._lookout.load
        self.past.append(
            Point(
                at=now,
                queued=sum(lane.queued for lane in lanes),
                running=sum(lane.running for lane in lanes),
                tokens_per_s=sum(self.rates.values()) if self.rates else None,
                first_text_s=self._figures.first_texts.percentiles(now).p95,
                gap_s=self._figures.gaps.percentiles(now).p95,
                rung=rung,
                load=None if load is None else load.on_rung[0],
            )
        )
        if not self.steps or self.steps[-1].rung != rung:
            self.steps.append(RungStep(now, rung))
        self.n_beats += 1
        beaten, self._beaten = self._beaten, asyncio.Event()
        beaten.set()

    @property
    def tokens_per_s(self) -> float | None:
        """On average of the last half hour; None while nothing is known."""
        known = [point.tokens_per_s for point in self.past if point.tokens_per_s is not None]
        return sum(known) / len(known) if known else None

    def _rates(self, now: float) -> dict[str, float]:
        """What each has generated since the last look; nothing of one that was not there then, or
        counts anew."""
        before, self._generated = self._generated, {}
        rates = {}
        for sight in self.sights:
            if sight.generated_tokens is None:
                continue
            self._generated[sight.name] = (sight.generated_tokens, now)
            tokens, at = before.get(sight.name, (sight.generated_tokens, now))
            if now > at and sight.generated_tokens >= tokens:
                rates[sight.name] = (sight.generated_tokens - tokens) / (now - at)
        return rates
