"""How many accelerators there should be, and when they are: new ones load for minutes.

Two ways to know what is needed: the day, which comes again, or what is measured now.
"""

from __future__ import annotations

import math
from collections import deque

from tertulia.core.load import Load
from tertulia.simulator.scenario import ScalingTable, Scenario
from tertulia.simulator.traffic import Rate, rate_of

# Moments of a lead that are looked at for the most that will be asked.
_LOOKS = 12


def wanted(scaling: ScalingTable, busy: float) -> int:
    """So many accelerators, in whole steps, where `busy` of them will work; never fewer than stay
    warm."""
    n = math.ceil(busy * scaling.headroom / scaling.step - 1e-9) * scaling.step
    return min(scaling.most, max(scaling.least, n))


def most_ahead(rate: Rate, now: float, lead_s: float) -> float:
    """The highest rate from now until what is ordered now is there."""
    return max(rate(now + lead_s * part / _LOOKS) for part in range(_LOOKS + 1))


def message_s(scenario: Scenario) -> float:
    """Accelerator-seconds of the mean message, with nothing that a ladder does."""
    people, fleet = scenario.people, scenario.fleet
    new = people.prompt_tokens - people.cached_tokens
    large = fleet.large.timing.seconds(new_tokens=new, answer_tokens=people.answer_tokens)
    small = fleet.small.timing.seconds(new_tokens=new, answer_tokens=people.answer_tokens)
    return people.easy_share * small + (1 - people.easy_share) * large


class Scaler:
    """One region's. Invariant: `_ordered` is how many there will be once all have loaded.

    `paid_s` are accelerator-seconds up to the last look, those that only load among them.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._rate = rate_of(scenario.traffic)
        self._message_s = message_s(scenario)
        self._loading: deque[tuple[float, int]] = deque()
        self._ordered = self._by_schedule(0.0)
        self._looked_at = 0.0
        self.paid_s = 0.0

    @property
    def first(self) -> int:
        """With how many the day begins."""
        return self._ordered

    def look(self, now: float, load: Load | None, size: int) -> int:
        """How many there are from now on, of `size`; what it orders now comes later."""
        scenario = self._scenario
        n_loading = sum(n for _, n in self._loading)
        self.paid_s += (size + n_loading) * (now - self._looked_at)
        self._looked_at = now
        if scenario.scaling.kind == "schedule":
            needed = self._by_schedule(now)
        else:
            needed = self._by_measure(load, size)
        if needed > self._ordered:
            ready_at = now + scenario.fleet.load_s
            self._loading.append((ready_at, needed - self._ordered))
        self._ordered = needed
        while self._loading and self._loading[0][0] <= now:
            size += self._loading.popleft()[1]
        return min(size, needed)  # what is not wanted any more goes at once

    def _by_schedule(self, now: float) -> int:
        scenario = self._scenario
        lead_s = scenario.fleet.load_s + scenario.scaling.every_s
        busy = most_ahead(self._rate, now, lead_s) * self._message_s
        return wanted(scenario.scaling, busy)

    def _by_measure(self, load: Load | None, size: int) -> int:
        asked = load.on_rung[0] * size if load is not None else 0.0
        return wanted(self._scenario.scaling, asked)
