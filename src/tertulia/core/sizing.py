"""How many replicas a model should have, by what its replicas owe and hold: for an autoscaler.

Replicas take minutes to load, so more are wanted for what will be asked when they are there, and
fewer only when none of the last minutes needed them. Where the day is known beforehand it says what
will be asked. Every number is an argument.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Because = Literal["floor", "slots", "reading", "growth", "most"]

# However much is owed, at most twice as many at once: a burst is soon read, and replicas stay long.
MOST_TIMES: Final = 2.0
# Samples of one model that are kept, evenly over the time it takes to load a replica.
MOST_SAMPLES: Final = 512
# A trend is read from so many samples at least, or it is chance.
FEWEST_FOR_A_TREND: Final = 8
# Moments of the time ahead that are looked at for the most that is needed: between two of them, a
# minute apart as a rule, little changes.
LOOKS_AHEAD: Final = 12
_WHOLE: Final = 1e-9  # 2.9999999 replicas are 3, and 3.0000001 as well


@dataclass(frozen=True, slots=True)
class Supply:
    """The ready replicas of one model, together. None is unknown, never 0.

    `model` is what it is picked as. `owed_tokens` are prompt tokens that were sent, are not cached
    and not read yet. `prefill_per_s` is what all of them read in a second.
    """

    model: str
    replicas: int
    slots: int
    running: int
    owed_tokens: int
    prefill_per_s: float | None

    @property
    def owed_s(self) -> float | None:
        """How long they would read what they owe."""
        return self.owed_tokens / self.prefill_per_s if self.prefill_per_s else None


@dataclass(frozen=True, slots=True)
class Pressure:
    """What one model had to do at one moment; `waiting` turns had no slot yet."""

    at: float
    supply: Supply
    waiting: float = 0.0


@dataclass(frozen=True, slots=True)
class ScaleRules:
    """What is wanted of a fleet. `spare` replicas may fail at once, and are always there.

    `utilisation` is the share of the slots that may be taken. `owed_s` is how long replicas may
    have to read: half of what a first token may take. `load_s` is how long one takes to be ready.
    """

    utilisation: float = 0.7
    owed_s: float = 0.5
    spare: int = 1
    load_s: float = 600.0
    most: int = 1_000

    def __post_init__(self) -> None:
        if not 0 < self.utilisation <= 1:
            raise ValueError("The share of slots that may be taken is above 0 and at most 1.")
        if not (0 < self.owed_s < math.inf and 0 <= self.load_s < math.inf):
            raise ValueError("Times to read are above 0 s, and times to load 0 s or more.")
        if not (self.spare >= 0 and self.most >= 1 + self.spare):
            raise ValueError("There may be at least one replica and the spare ones.")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A recommendation, and what it follows from."""

    replicas: int
    because: Because


class Pressures:
    """The last samples of one model, as long as a replica takes to load.

    Invariant: their times grow, and there are at most `MOST_SAMPLES` of them.
    """

    def __init__(self, rules: ScaleRules) -> None:
        self.rules = rules
        self._samples: deque[Pressure] = deque(maxlen=MOST_SAMPLES)

    def add(self, pressure: Pressure) -> None:
        """Takes a sample in; one that comes too soon after the last takes its place, if it is
        higher: a burst between two samples must not be missed."""
        samples, rules = self._samples, self.rules
        while samples and samples[0].at < pressure.at - rules.load_s:
            samples.popleft()
        if samples and pressure.at - samples[-1].at < rules.load_s / MOST_SAMPLES:
            if needed(pressure, rules)[0] > needed(samples[-1], rules)[0]:
                samples[-1] = Pressure(samples[-1].at, pressure.supply, pressure.waiting)
            return
        samples.append(pressure)

    def wanted(self) -> Wanted:
        """By the samples of the last time in which a replica could have been loaded."""
        return wanted(self._samples, self.rules)


def needed(pressure: Pressure, rules: ScaleRules) -> tuple[float, Because]:
    """Replicas for one moment, without spare ones, in parts; and what asks for them."""
    supply = pressure.supply
    asked = supply.running + pressure.waiting
    if supply.replicas < 1 or supply.slots < 1:
        return (1.0, "slots") if asked > 0 else (0.0, "floor")
    by_slots = asked * supply.replicas / (supply.slots * rules.utilisation)
    by_reading = supply.replicas * min(MOST_TIMES, (supply.owed_s or 0.0) / rules.owed_s)
    return (by_reading, "reading") if by_reading > by_slots else (by_slots, "slots")


def wanted(samples: Iterable[Pressure], rules: ScaleRules) -> Wanted:
    """How many replicas there should be: the most that any sample needed, or what the trend needs
    by the time a new one is ready; and the spare ones."""
    history = [(one.at, *needed(one, rules)) for one in samples]
    peak, because = max(((replicas, why) for _, replicas, why in history), default=(0.0, _floor()))
    coming = _coming([(at, replicas) for at, replicas, _ in history], rules.load_s)
    if coming > peak:
        peak, because = min(coming, MOST_TIMES * peak), "growth"
    return _in_whole(peak, because, rules)


def wanted_ahead(needed_at: Callable[[float], float], now: float, rules: ScaleRules) -> Wanted:
    """How many replicas there should be where it is known what is `needed_at` each moment, in parts
    and without spare ones: the most until one that is ordered now is ready, and the spare ones."""
    moments = (now + rules.load_s * part / LOOKS_AHEAD for part in range(LOOKS_AHEAD + 1))
    return _in_whole(max(needed_at(at) for at in moments), "slots", rules)


def _in_whole(replicas: float, because: Because, rules: ScaleRules) -> Wanted:
    whole = math.ceil(replicas - _WHOLE) + rules.spare
    if whole > rules.most:
        return Wanted(rules.most, "most")
    floor = 1 + rules.spare
    return Wanted(whole, because) if whole > floor else Wanted(floor, "floor")


def shared_out(supplies: Sequence[Supply], waiting: float) -> list[float]:
    """Of the turns that wait, each model's part: as the running ones are, or the slots if none."""
    weights = [supply.running for supply in supplies]
    if not any(weights):
        weights = [supply.slots for supply in supplies]
    total = sum(weights)
    return [waiting * weight / total if total else 0.0 for weight in weights]


def _coming(history: Sequence[tuple[float, float]], ahead_s: float) -> float:
    """What will be needed so much later, if it goes on as between the two halves of the samples."""
    if len(history) < FEWEST_FOR_A_TREND:
        return 0.0
    half = len(history) // 2
    (early_at, early), (late_at, late) = _mean(history[:half]), _mean(history[half:])
    if late <= early or late_at <= early_at:
        return 0.0
    return late + (late - early) * ahead_s / (late_at - early_at)


def _mean(history: Sequence[tuple[float, float]]) -> tuple[float, float]:
    n = len(history)
    return sum(at for at, _ in history) / n, sum(replicas for _, replicas in history) / n


def _floor() -> Because:
    return "floor"
