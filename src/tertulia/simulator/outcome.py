"""What became of a run: counts and waits of each group of people, and how it went over time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import quantiles

# A report shows no more of a run, and nobody could see more of it.
SAMPLES = 300


@dataclass(slots=True)
class Fate:
    """What became of one group's messages. `waits_s` are those of the turns that began."""

    n: int = 0
    n_refused: int = 0
    n_timed_out: int = 0
    n_over_budget: int = 0
    n_came_back: int = 0
    n_small: int = 0
    n_short: int = 0
    n_capped: int = 0
    n_paused: int = 0
    n_begun: int = 0
    waits_s: list[float] = field(default_factory=list)

    @property
    def timed_out(self) -> float:
        """The share that nobody answered in time."""
        return self.n_timed_out / max(1, self.n)

    @property
    def refused(self) -> float:
        """The share that was told at once to come back later."""
        return self.n_refused / max(1, self.n)

    @property
    def over_budget(self) -> float:
        """The share that had no budget left."""
        return self.n_over_budget / max(1, self.n)

    @property
    def wait_p50_s(self) -> float:
        """How long the middle one of those that began had waited."""
        return percentile(self.waits_s, 50)

    @property
    def wait_p95_s(self) -> float:
        """How long those that began had waited: of a hundred, 95 for no longer."""
        return percentile(self.waits_s, 95)


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the run, of all regions together; rates are since the last one.

    `load` is the fullest region's load without any rung, `seen` with the rung that holds.
    """

    at: float
    asked_per_s: float
    begun_per_s: float
    refused_per_s: float
    timed_out_per_s: float
    waiting: int
    busy: float
    rung: int
    load: float
    seen: float
    accelerators: int
    wait_s: float
    cold: float


@dataclass(slots=True)
class Flow:
    """What one region has done since it was last looked at."""

    n_asked: int = 0
    n_begun: int = 0
    n_refused: int = 0
    n_timed_out: int = 0
    n_cold: int = 0
    waited_s: float = 0.0


@dataclass(slots=True)
class Outcome:
    """How a run went. `steps` are the rungs that were taken, each with its time and region.

    `accelerator_s` is how long accelerators were there in what counts, `paid_s` in all of the run
    with the time that they loaded.
    """

    groups: dict[str, Fate] = field(default_factory=dict)
    steps: list[tuple[float, int, int]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    notes: list[tuple[float, str]] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    pauses_s: list[float] = field(default_factory=list)
    busy: float = 0.0
    accelerator_s: float = 0.0
    paid_s: float = 0.0
    n_cold: int = 0
    most_waiting: int = 0
    longest_wait_s: float = 0.0

    def group(self, name: str) -> Fate:
        """The group's figures; empty if nobody of it came."""
        return self.groups.setdefault(name, Fate())

    @property
    def all(self) -> Fate:
        """Everybody's."""
        return together(self.groups.values())


def together(fates: Iterable[Fate]) -> Fate:
    """The figures of several groups as one."""
    found = Fate()
    for fate in fates:
        found.n += fate.n
        found.n_refused += fate.n_refused
        found.n_timed_out += fate.n_timed_out
        found.n_over_budget += fate.n_over_budget
        found.n_came_back += fate.n_came_back
        found.n_small += fate.n_small
        found.n_short += fate.n_short
        found.n_capped += fate.n_capped
        found.n_paused += fate.n_paused
        found.n_begun += fate.n_begun
        found.waits_s += fate.waits_s
    return found


def percentile(values: list[float], percent: int) -> float:
    """The value that so many of a hundred do not exceed; 0 of none."""
    if len(values) < 2:
        return values[0] if values else 0.0
    assert 0 < percent < 100, percent
    return quantiles(values, n=100, method="inclusive")[percent - 1]
