"""The machines that scale: what was ordered loads for minutes, and is paid while it does.

How many there should be is the service's own decision (`core.sizing`), by what is measured now, as
`tertulia scale` says it, or by the day, which comes again.
"""

from __future__ import annotations

from collections import deque

from tertulia.core.sizing import Pressure, Pressures, ScaleRules, Supply, wanted_ahead
from tertulia.simulator.scenario import Scenario
from tertulia.simulator.traffic import rate_of


class Scaler:
    """One region's. Invariant: `_ordered` is how many there will be once all have loaded.

    `paid_s` are accelerator-seconds up to the last look, those that only load among them.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scaling, self._load_s = scenario.scaling, scenario.fleet.load_s
        # What is ordered at the next look comes later by as much.
        lead_s = self._load_s + self._scaling.every_s
        self._rules = ScaleRules(
            utilisation=1 / self._scaling.headroom, spare=0, load_s=lead_s, most=self._scaling.most
        )
        self._rate = rate_of(scenario.traffic)
        self._message_s = message_s(scenario)
        self._pressures = Pressures(self._rules)
        self._loading: deque[tuple[float, int]] = deque()
        self._ordered = self._by_schedule(0.0)
        self._looked_at = self._busy_s = 0.0
        self.paid_s = 0.0

    @property
    def first(self) -> int:
        """With how many the day begins."""
        return self._ordered

    def look(self, now: float, *, size: int, busy_s: float, waiting: int) -> int:
        """How many there are from now on, of `size`; what it orders now comes later. `busy_s` are
        the accelerator-seconds that were used up to now."""
        elapsed_s, used_s = now - self._looked_at, busy_s - self._busy_s
        n_loading = sum(n for _, n in self._loading)
        self.paid_s += (size + n_loading) * elapsed_s
        self._looked_at, self._busy_s = now, busy_s
        if self._scaling.kind == "schedule":
            needed = self._by_schedule(now)
        else:
            needed = self._by_measure(now, size, used_s / elapsed_s, waiting)
        if needed > self._ordered:
            self._loading.append((now + self._load_s, needed - self._ordered))
        self._ordered = needed
        while self._loading and self._loading[0][0] <= now:
            size += self._loading.popleft()[1]
        return min(size, needed)  # what is not wanted any more goes at once

    def _by_schedule(self, now: float) -> int:
        message_s = self._message_s / self._rules.utilisation
        found = wanted_ahead(lambda at: self._rate(at) * message_s, now, self._rules)
        return self._in_steps(found.replicas)

    def _by_measure(self, now: float, size: int, n_busy: float, waiting: int) -> int:
        streams = self._scaling.streams
        supply = Supply(
            "all",
            replicas=size,
            slots=size * streams,
            running=round(n_busy * streams),
            owed_tokens=0,  # reading is a part of what a message holds its accelerator for
            prefill_per_s=None,
        )
        self._pressures.add(Pressure(now, supply, waiting))
        return self._in_steps(self._pressures.wanted().replicas)

    def _in_steps(self, n: int) -> int:
        """As they can be ordered; never fewer than stay warm."""
        scaling = self._scaling
        return min(scaling.most, max(scaling.least, -(-n // scaling.step) * scaling.step))


def message_s(scenario: Scenario) -> float:
    """Accelerator-seconds of the mean message, with nothing that a ladder does."""
    people, fleet = scenario.people, scenario.fleet
    new = people.prompt_tokens - people.cached_tokens
    large = fleet.large.timing.seconds(new_tokens=new, answer_tokens=people.answer_tokens)
    small = fleet.small.timing.seconds(new_tokens=new, answer_tokens=people.answer_tokens)
    return people.easy_share * small + (1 - people.easy_share) * large
