"""A day of scaling by the live function: never short, a third of the hours, no to and fro."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import pytest

from tertulia.core.sizing import Pressure, Pressures, ScaleRules, Supply

DAY_S = 86_400
LOOK_S = 30
SLOTS = 32  # of a replica
PEAK = 2_000.0  # replies at once, in the busiest moment
LOADS_S = (600, 1_800)


@dataclass(frozen=True)
class Day:
    """What was ready at each look, and how many slots were missing at the worst one."""

    ready: list[int]
    missing: float

    @property
    def hours_share(self) -> float:
        """Of the hours of a fleet that is always as large as at its largest."""
        return sum(self.ready) / len(self.ready) / max(self.ready)

    @property
    def turns(self) -> int:
        """How often it went from growing to shrinking, or back."""
        steps = [b - a for a, b in pairwise(self.ready) if a != b]
        return sum(a * b < 0 for a, b in pairwise(steps))


def busy_at(at: float) -> float:
    """One peak a day and a night that is nearly empty: the mean is a third of the peak."""
    return PEAK * (0.02 + 0.98 * math.pow((1 - math.cos(2 * math.pi * at / DAY_S)) / 2, 2.7))


def a_day(load_s: float) -> Day:
    """What is wanted is there after `load_s`; what is no longer wanted goes at once."""
    rules = ScaleRules(load_s=load_s)
    history = Pressures(rules)
    ready, loading = 2, list[tuple[float, int]]()
    seen, missing = [], 0.0
    for at in range(0, DAY_S, LOOK_S):
        ready += sum(n for done, n in loading if done <= at)
        loading = [(done, n) for done, n in loading if done > at]
        running = busy_at(at)
        supply = Supply("large", ready, ready * SLOTS, round(running), 0, None)
        history.add(Pressure(at, supply))
        wanted = history.wanted().replicas
        coming = ready + sum(n for _, n in loading)
        if wanted > coming:
            loading.append((at + load_s, wanted - coming))
        elif wanted < ready:
            ready = wanted
        seen.append(ready)
        missing = max(missing, running - ready * SLOTS)
    return Day(seen, missing)


@pytest.mark.parametrize("load_s", LOADS_S)
def test_nobody_is_short_of_a_slot_all_day(load_s: float) -> None:
    assert a_day(load_s).missing <= 0


@pytest.mark.parametrize("load_s", LOADS_S)
def test_following_the_day_takes_little_more_than_its_mean(load_s: float) -> None:
    mean = sum(busy_at(at) for at in range(0, DAY_S, LOOK_S)) / (DAY_S / LOOK_S) / PEAK
    assert mean == pytest.approx(1 / 3, abs=0.02)
    assert mean < a_day(load_s).hours_share < mean + 2 * load_s / DAY_S + 0.02


@pytest.mark.parametrize("load_s", LOADS_S)
def test_it_grows_once_and_shrinks_once(load_s: float) -> None:
    assert a_day(load_s).turns <= 2
