"""How full the fleet is, and how full it would be on every rung of the ladder.

Load is demand by capacity, counted in slots: a running reply holds one of its model's. Above 1,
more is asked for than can be done. What the ladder did to a reply, or would do, is undone or done
in thought, so that the load of a rung does not depend on the rung that holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

# Slots or load on rung 0, 1 and 2. What is on a rung is what there is without the next one.
PerRung = tuple[float, float, float]

# Figures are averaged over one step of the ladder: over less they follow chance, over more they are
# late. Where few replies begin it is longer, until the figures rest on enough of them: the load of
# 3,000 varies by chance by about 2 %. A minute is the most: a shortage is seen in about half of it.
AVERAGED_S: Final = 10.0
ENOUGH: Final = 3_000
LONGEST_S: Final = 60.0
# What waits counts as if it had to be done in so long: nobody likes to wait longer.
DONE_IN_S: Final = 10.0
# How long a reply holds its slot compared with another, until it has been measured: 0.18 and 0.67
# accelerator seconds of the small and the large model; an answer of at most 300 tokens and one of
# 400, prompts included.
SMALL_SHARE: Final = 0.26
SHORT_SHARE: Final = 0.77
# What a process told counts for so long. It tells every two seconds; one that died tells no more.
TOLD_S: Final = 6.0
# Of each new measurement: one odd reply must not matter, twenty of them must.
WEIGHT: Final = 0.1
# No measured pair of models differs by more; a handful of odd replies may seem to.
MOST_TIMES: Final = 20.0
# Beyond this it makes no difference how much too much is asked for.
MOST_LOAD: Final = 10.0
# What no process sees: more models, longer names, more than a fleet has slots.
_MOST_MODELS: Final = 64
_LONGEST_WORD: Final = 200
_MOST: Final = 1e9


class Slot(NamedTuple):
    """What one running reply holds: a slot of `model`.

    Without the ladder it would hold one of `home`. `is_eased`: the ladder may act on its plan;
    `is_short`: its answer was capped by it.
    """

    model: str
    home: str
    is_eased: bool
    is_short: bool = False


@dataclass(frozen=True, slots=True)
class Demand:
    """The slots of `model` that would be held on each rung."""

    model: str
    slots: PerRung


@dataclass(frozen=True, slots=True)
class Sight:
    """What one process sees, averaged over the last seconds: its own replies and refusals.

    `waiting` are the chat turns in the line that nobody has begun, the same for whoever looks; None
    is unknown, never 0.
    """

    demand: tuple[Demand, ...] = ()
    begun_per_s: float = 0.0
    refused_per_s: float = 0.0
    waiting: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """The fullest model's load on each rung, and how many replies begin a second, of all models.

    `is_whole` is False where something is unknown: then the loads are at least so high.
    """

    on_rung: PerRung
    begun_per_s: float
    is_whole: bool

    @property
    def averaged_s(self) -> float:
        """How long figures are to be averaged where so many replies begin."""
        if 2 * LONGEST_S * self.begun_per_s <= ENOUGH:
            return LONGEST_S
        return max(AVERAGED_S, ENOUGH / (2 * self.begun_per_s))

    @property
    def n_replies(self) -> float:
        """How many replies the figures rest on: an average that fades is as good as a plain one
        over twice the time."""
        return 2 * self.averaged_s * self.begun_per_s


@dataclass(frozen=True, slots=True)
class Spell:
    """What the replies of one kind did since they were last told of, counted by whoever runs them:
    how many began and ended, for how many seconds all of them held a slot, and how long those that
    ended had held theirs, each on average."""

    n_begun: int
    n_ended: int
    held_s: float
    seconds: float = 0.0


@dataclass(slots=True)
class _Holding:
    """How many replies hold a slot, and for how many seconds in all since the last telling."""

    counted_at: float
    n_running: int = 0
    held_s: float = 0.0

    def count(self, now: float) -> None:
        """Brings the seconds up to now."""
        self.held_s += self.n_running * (now - self.counted_at)
        self.counted_at = now


class Tally:
    """Counts the replies of one process as they begin and end. Time is an argument.

    Invariant: `_holdings` have exactly the replies that began and did not end.
    """

    def __init__(self, now: float) -> None:
        self._holdings: dict[Slot, _Holding] = {}
        self._seconds: dict[tuple[str, bool], float] = {}
        self._sight = Sight()
        self._n_begun = 0
        self._n_refused = 0
        self._told_at = now

    def began(self, slot: Slot, now: float) -> None:
        """A reply holds the slot from now on."""
        holding = self._holdings.setdefault(slot, _Holding(now))
        holding.count(now)
        holding.n_running += 1
        self._n_begun += 1

    def ended(self, slot: Slot, now: float, *, seconds: float) -> None:
        """It held the slot for so long, until now."""
        holding = self._holdings[slot]
        assert holding.n_running > 0, slot
        holding.count(now)
        holding.n_running -= 1
        key = (slot.model, slot.is_short)
        before = self._seconds.get(key, seconds)
        self._seconds[key] = before + WEIGHT * (seconds - before)

    def counted(self, slot: Slot, now: float, spell: Spell) -> None:
        """All that replies of one kind did up to now, in place of `began` and `ended` for each."""
        holding = self._holdings.setdefault(slot, _Holding(now))
        holding.counted_at = now
        holding.n_running += spell.n_begun - spell.n_ended
        assert holding.n_running >= 0, slot
        holding.held_s += spell.held_s
        self._n_begun += spell.n_begun
        if spell.n_ended:
            key = (slot.model, slot.is_short)
            before = self._seconds.get(key, spell.seconds)
            moved = 1.0 - (1.0 - WEIGHT) ** spell.n_ended
            self._seconds[key] = before + moved * (spell.seconds - before)

    def refused(self, n: int = 1) -> None:
        """Turns were sent away because they could not start soon enough."""
        self._n_refused += n

    def told(
        self, now: float, *, small: str | None, waiting: int | None, over_s: float = AVERAGED_S
    ) -> Sight:
        """What this process has seen up to now, averaged `over_s`; `small` is the model that rung 1
        moves to."""
        passed_s = now - self._told_at
        if passed_s <= 0.0:
            return self._sight
        new = 1.0 - math.exp(-passed_s / over_s)
        known = {one.model: one.slots for one in self._sight.demand}
        seen = self._demand(now, passed_s, small)
        demand = [
            Demand(model, _blended(known.get(model, _NOTHING), seen.get(model, _NOTHING), new))
            for model in sorted(known.keys() | seen.keys())
        ]
        begun = _moved(self._sight.begun_per_s, self._n_begun / passed_s, new)
        refused = _moved(self._sight.refused_per_s, self._n_refused / passed_s, new)
        if waiting is not None and self._sight.waiting is not None:
            counted: float | None = _moved(self._sight.waiting, waiting, new)
        else:
            counted = waiting
        self._n_begun = self._n_refused = 0
        self._told_at = now
        kept = tuple(one for one in demand if max(one.slots) > _LEAST)
        self._sight = Sight(kept, begun, refused, counted)
        return self._sight

    def _demand(self, now: float, passed_s: float, small: str | None) -> dict[str, PerRung]:
        """What would have been held since the last telling, on each rung, of each model."""
        found: dict[str, list[float]] = {}
        for slot, holding in list(self._holdings.items()):
            holding.count(now)
            n_running, holding.held_s = holding.held_s / passed_s, 0.0
            if not holding.n_running:
                del self._holdings[slot]
            for rung in range(len(_NOTHING)):
                model, is_short = slot.home, False
                if slot.is_eased and rung >= 1 and small is not None:
                    model = small
                if slot.is_eased and rung >= 2:
                    is_short = True
                times = self._times((model, is_short), (slot.model, slot.is_short), small)
                found.setdefault(model, [0.0, 0.0, 0.0])[rung] += n_running * times
        return {model: (slots[0], slots[1], slots[2]) for model, slots in found.items()}

    def _times(self, one: tuple[str, bool], other: tuple[str, bool], small: str | None) -> float:
        """How many times as long a reply of one kind holds its slot as one of the other."""
        if one == other:
            return 1.0
        seconds, others = self._seconds.get(one), self._seconds.get(other)
        if seconds is None or others is None or min(seconds, others) <= 0.0:
            return _usual_share(one, small) / _usual_share(other, small)
        return min(MOST_TIMES, max(1.0 / MOST_TIMES, seconds / others))


def load_of(sights: Iterable[Sight], slots: Mapping[str, int]) -> Load | None:
    """The fleet's load, from what each process sees and the slots of the models that are ready.

    None: nobody can generate, which is no overload. What waits and what was refused is taken to be
    like what runs: by as much as fewer are begun than ask, the demand is higher than it shows.
    """
    there = {model: n for model, n in slots.items() if n > 0}
    if not there:
        return None
    demand: dict[str, PerRung] = {}
    begun = unserved = 0.0
    waiting: list[float] = []
    for sight in sights:
        for one in sight.demand:
            demand[one.model] = _plus(demand.get(one.model, _NOTHING), one.slots)
        begun += sight.begun_per_s
        unserved += sight.refused_per_s
        if sight.waiting is not None:
            waiting.append(sight.waiting)
    unserved += max(waiting, default=0.0) / DONE_IN_S
    times = 1.0 + unserved / begun if begun > 0.0 else 1.0

    def fullest(rung: int) -> float:
        shares = (demand.get(model, _NOTHING)[rung] / n for model, n in there.items())
        return min(MOST_LOAD, times * max(shares))

    return Load(
        on_rung=(fullest(0), fullest(1), fullest(2)),
        begun_per_s=begun,
        is_whole=bool(waiting) and demand.keys() <= there.keys(),
    )


def is_sound(sight: Sight) -> bool:
    """Whether a sight of the right types can be reckoned with: it comes from outside."""
    figures = [sight.begun_per_s, sight.refused_per_s, sight.waiting or 0.0]
    figures += [figure for one in sight.demand for figure in one.slots]
    return (
        len(sight.demand) <= _MOST_MODELS
        and all(0.0 <= figure <= _MOST for figure in figures)
        and all(0 < len(one.model) <= _LONGEST_WORD for one in sight.demand)
    )


_NOTHING: Final[PerRung] = (0.0, 0.0, 0.0)
# An average that has fallen to this is that of a model which nobody uses any more.
_LEAST: Final = 1e-6


def _usual_share(kind: tuple[str, bool], small: str | None) -> float:
    model, is_short = kind
    return (SMALL_SHARE if model == small else 1.0) * (SHORT_SHARE if is_short else 1.0)


def _moved(average: float, seen: float, new: float) -> float:
    return average + new * (seen - average)


def _blended(average: PerRung, seen: PerRung, new: float) -> PerRung:
    pairs = zip(average, seen, strict=True)
    first, second, third = (_moved(one, other, new) for one, other in pairs)
    return first, second, third


def _plus(one: PerRung, other: PerRung) -> PerRung:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]
