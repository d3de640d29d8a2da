"""The line in front of the engines: who goes next, what may be claimed, and how long it takes.

Every count, cost and moment is an argument; nothing here looks at a clock or keeps a queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from tertulia.core.pools import Opening, Pool, full_for, kept_free, ranked_share, through_s
from tertulia.core.quota import cost
from tertulia.core.types import Lane, ModelState, Turn

# What is learned of the length of replies fades by half in so many seconds: some replies long, so
# that a burst of young ones does not count for all, and short enough to follow what changes.
HALF_S: Final = 60.0
# How many run of a lane goes up and down by chance, by the root of their number: over a wait that
# evens out, and what is seen at one moment would be a worse guess than what was seen of late.
STEADY_S: Final = 10.0
# Before anything was seen, a reply is taken to last so long, and is believed like so many replies.
REPLY_S: Final = 10.0
BELIEVED: Final = 4.0
# Two looks at the line that lie further apart say nothing of what went on between them.
GAP_S: Final = 5.0


# Ranks: start-time fair queueing over users (Goyal et al. 1996), with what turns cost an engine as
# their length (the virtual token counters of Sheng et al. 2024). In thousandths of a unit.


def rank_of(*, tag: int, floor: int, last: int | None) -> int:
    """Where a new turn stands in its lane; the lowest rank goes first, of equal ones the oldest.

    `tag` is what its owner's turns of this lane have come to, `floor` the lane's virtual time,
    `last` the highest rank among the owner's turns that still wait. Whoever was away begins at the
    floor: idleness earns nothing. Nobody passes a turn of his own.
    """
    return max(tag, floor, 0 if last is None else last + 1)


def virtual_time(first: int | None, highest_tag: int | None) -> int:
    """How far a lane has come: the rank of the `first` who waits. Once nobody waits everybody is
    alike, so it is the highest tag that anybody has."""
    if first is not None:
        return first
    return highest_tag or 0


def worst_cost(turn: Turn) -> int:
    """What a turn is taken to cost while nobody knows better: its owner's tag goes up by it."""
    return max(1, cost("units", turn.worst_case))


def unused_cost(turn: Turn) -> int:
    """What an ended turn did not cost after all: its owner's tag goes down by it."""
    return max(0, worst_cost(turn) - cost("units", turn.usage))


# Claims.

_NOBODY: Final[Mapping[Lane, Mapping[str, int]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Claimable:
    """What a worker may claim: turns down to the lane `lowest` (None: of no lane), and chat turns
    for which an engine puts others aside, while fewer than `ranked_slots` of their lane and those
    before it run.

    Of those not the turns that nobody has begun and that wait for a model which is `full` for their
    lane: they go on waiting, and let others pass.
    """

    lowest: Lane | None
    ranked_slots: int
    full: tuple[tuple[Lane, str], ...] = ()

    def lets_wait(self, lane: Lane, awaited: str | None) -> bool:
        """Whether a turn that nobody has begun is left in the line for want of its model."""
        return awaited is not None and (lane, awaited) in self.full


def claimable(
    models: Sequence[ModelState],
    *,
    n_held: int,
    n_most: int,
    before: Mapping[Lane, Mapping[str, int]] = _NOBODY,
) -> Claimable | None:
    """What a worker that holds `n_held` turns of at most `n_most` may claim now, if anything.

    Chat takes any free slot, a batch only one beyond those that are kept free. Without one, an
    engine with priorities still takes what goes before something that runs there. `before` says of
    each lane how many of it and of those before it are known to run on each model.
    """
    ready = [model for model in models if model.state == "ready"]
    n_free = sum(model.room for model in ready)
    if n_free > 0 and n_held < n_most:
        n_slots = sum(model.slots for model in ready)
        lowest = Lane.BATCH if n_free > kept_free(n_slots) else Lane.FREE
        return Claimable(lowest, 0, _full(lowest, ready, before))
    n_ranked = sum(model.ranked_slots for model in ready)
    # Twice as many, or paid turns would wait while a worker is full of free ones.
    if n_ranked > 0 and n_held < 2 * n_most:
        return Claimable(None, n_ranked, _full(Lane.FREE, ready, before))
    return None


def _full(
    lowest: Lane, ready: Sequence[ModelState], before: Mapping[Lane, Mapping[str, int]]
) -> tuple[tuple[Lane, str], ...]:
    lanes = [lane for lane in Lane if lane <= lowest]
    return tuple(pair for lane in lanes for pair in full_for(lane, ready, before.get(lane, {})))


def lowest_lane(may: Claimable, running: Mapping[Lane, int]) -> Lane | None:
    """The lowest lane that can be claimed from while so many turns of each lane run."""
    found = may.lowest
    n_before = 0
    for lane in Lane:
        n_before += running.get(lane, 0)
        if lane.is_chat and n_before < may.ranked_slots and (found is None or found < lane):
            found = lane
    return found


def is_dead(*, followed_at: float, now: float, grace_s: float | None) -> bool:
    """Whether nobody has followed a turn for its plan's grace: no engine should see it."""
    return grace_s is not None and now - followed_at >= grace_s


# How long it takes.


@dataclass(frozen=True, slots=True)
class LaneState:
    """A lane as its store counts it. `queued` turns were never claimed, `running` ones were and
    have not ended; `begun` is how many were ever claimed for the first time, so it only grows."""

    queued: int = 0
    running: int = 0
    begun: int = 0


EMPTY_LANE: Final = LaneState()


@dataclass(frozen=True, slots=True)
class LineView:
    """One look at the line, `at` a moment of the store's clock.

    `places` says of the replies that were asked for and wait where they stand among all that wait,
    from 1, in the order of claims. `awaiting` counts those that wait for one model, by lane and its
    name, and `running_on` those that run, by their model.
    """

    at: float
    lanes: Mapping[Lane, LaneState]
    places: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    awaiting: Mapping[tuple[Lane, str], int] = field(default_factory=lambda: MappingProxyType({}))
    running_on: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def lane(self, lane: Lane) -> LaneState:
        """The lane, empty if nobody was ever there."""
        return self.lanes.get(lane, EMPTY_LANE)

    def queued_before(self, lane: Lane) -> int:
        """How many wait who go before a newcomer of this lane, or beside."""
        return sum(state.queued for other, state in self.lanes.items() if other <= lane)

    @property
    def running(self) -> int:
        """How many run, of any lane."""
        return sum(state.running for state in self.lanes.values())

    def in_the_way(self, lane: Lane, ranked: float = 0.0) -> Mapping[Lane, float]:
        """How many run that must end before one more of this lane can begin, by their lanes. Where
        engines know priorities, which are the share `ranked` of all slots, not those of the lanes
        behind it: they are put aside."""
        return {
            other: state.running * (1.0 if other <= lane else 1.0 - ranked)
            for other, state in self.lanes.items()
        }


@dataclass(frozen=True, slots=True)
class _Seen:
    """Of one lane: how many seconds its turns ran, all together, how many of them ended, and how
    many of them run as a rule; how many began while somebody waited, and how many would have by the
    guess of `_starts_guess`."""

    run_s: float = 0.0
    ended: float = 0.0
    running: float | None = None
    begun: float = 0.0
    guessed: float = 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """How long replies last, and how wrong the guess is of how soon turns begin, lane by lane: all
    of it learned from one look at the line after another.

    Seconds run over turns ended: the right guess also while most of those that run have not ended
    yet. What was seen fades, and a little belief in `REPLY_S` stays.
    """

    last: LineView | None = None
    seen: Mapping[Lane, _Seen] = field(default_factory=lambda: MappingProxyType({}))

    def after(self, view: LineView, *, n_slots: int = 0, ranked: float = 0.0) -> Pace:
        """What is known once `view` has been seen too; one that is not newer changes nothing.
        Without slots (`ranked`: their share at engines with priorities) no guess is made, and none
        compared."""
        if self.last is None:
            return Pace(view, self.seen)
        elapsed_s = view.at - self.last.at
        if elapsed_s <= 0:
            return self
        if elapsed_s > GAP_S:
            return Pace(view, self.seen)
        keeps = 0.5 ** (elapsed_s / HALF_S)
        seen = {lane: self._learned(lane, view, elapsed_s, keeps) for lane in Lane}
        if n_slots:
            for lane in Lane:
                guess = elapsed_s * _starts_guess(self.last, self, lane, n_slots, ranked)
                seen[lane] = self._compared(lane, seen[lane], view, guess)
        return Pace(view, seen)

    def reply_s(self, lane: Lane) -> float:
        """How long a reply of this lane lasts, from its claim to its end."""
        seen = self.seen.get(lane, _Seen())
        return (BELIEVED * REPLY_S + seen.run_s) / (BELIEVED + seen.ended)

    def running(self, lane: Lane, view: LineView) -> float:
        """How many turns of this lane run as a rule; what `view` shows if nothing is known."""
        steady = self.seen.get(lane, _Seen()).running
        return view.lane(lane).running if steady is None else steady

    def correction(self, lane: Lane) -> float:
        """How many turns of this lane began while it waited, for one that was guessed. Who runs
        does not tell what others of the lanes before will take, nor how much longer somebody runs
        whom an engine puts aside. That the guess is right is believed like `BELIEVED` starts."""
        seen = self.seen.get(lane, _Seen())
        return (BELIEVED + seen.begun) / (BELIEVED + seen.guessed)

    def _learned(self, lane: Lane, view: LineView, elapsed_s: float, keeps: float) -> _Seen:
        assert self.last is not None
        before, after = self.last.lane(lane), view.lane(lane)
        known = self.seen.get(lane, _Seen())
        ran_s = elapsed_s * (before.running + after.running) / 2
        ended = max(0, (after.begun - before.begun) - (after.running - before.running))
        steady = self.running(lane, self.last)
        steady += (after.running - steady) * (1 - 0.5 ** (elapsed_s / STEADY_S))
        return _Seen(
            keeps * known.run_s + ran_s,
            keeps * known.ended + ended,
            steady,
            keeps * known.begun,
            keeps * known.guessed,
        )

    def _compared(self, lane: Lane, seen: _Seen, view: LineView, guess: float) -> _Seen:
        assert self.last is not None
        before, after = self.last.lane(lane), view.lane(lane)
        if not before.queued or not after.queued:
            return seen
        begun = max(0, after.begun - before.begun)
        return replace(seen, begun=seen.begun + begun, guessed=seen.guessed + guess)


def starts_per_s(
    view: LineView, pace: Pace, lane: Lane, *, n_slots: int, ranked: float = 0.0
) -> float:
    """How many turns of a lane can begin a second: as many as end in the slots that the lanes
    before it leave, corrected by what was seen. Never 0: paid work does not fill an engine for
    ever."""
    return _starts_guess(view, pace, lane, n_slots, ranked) * pace.correction(lane)


def _starts_guess(view: LineView, pace: Pace, lane: Lane, n_slots: int, ranked: float) -> float:
    n_left = n_slots - sum(pace.running(other, view) for other in Lane if other < lane)
    in_the_way = view.in_the_way(lane, ranked)
    own = {other: n for other, n in in_the_way.items() if other >= lane}
    if any(own.values()):
        reply_s = sum(own.values()) / sum(n / pace.reply_s(other) for other, n in own.items())
    else:
        reply_s = pace.reply_s(lane)
    return max(1.0, n_left) / reply_s


def wait_s(view: LineView, pace: Pace, lane: Lane, *, place: int, n_slots: int) -> float:
    """How long the turn at `place` of the whole line (1 is next) will wait to begin, where no
    engine puts anybody aside."""
    spare = n_slots - view.running  # below 0: so many must end first where slots have gone
    ahead = ahead_of(view, lane, {}).part(place - 1).in_its_lane(spare).in_all
    return max(0.0, ahead + 1 - spare) / starts_per_s(view, pace, lane, n_slots=n_slots)


# With several models.


@dataclass(frozen=True, slots=True)
class Ahead:
    """Who goes before a turn: so many `in_all`, of those so many `of_others` (lanes before its own,
    which come first), and the ones that wait for one model, by its name."""

    in_all: float
    awaiting: Mapping[str, float]
    of_others: float = 0.0

    def part(self, n: float) -> Ahead:
        """The first `n` of them, taken to be as they all are."""
        share = n / self.in_all if self.in_all else 0.0
        awaiting = {name: share * one for name, one in self.awaiting.items()}
        return Ahead(n, awaiting, min(n, self.of_others))

    def in_its_lane(self, spare: float) -> Ahead:
        """Without those of other lanes that do not find one of the `spare` slots: how fast its own
        lane moves is how fast it does beside them."""
        return self.part(self.in_all - (self.of_others - min(self.of_others, max(0.0, spare))))


def ahead_of(view: LineView, lane: Lane, come: Mapping[tuple[Lane, str | None], int]) -> Ahead:
    """Who goes before a newcomer of this lane; `come` have come since the `view`, by lane and the
    model that they wait for."""
    in_all = float(view.queued_before(lane))
    of_others = in_all - view.lane(lane).queued
    awaiting: dict[str, float] = {}
    for (other, name), n in view.awaiting.items():
        if other <= lane:
            awaiting[name] = awaiting.get(name, 0.0) + n
    for (other, awaited), n in come.items():
        if other <= lane:
            in_all += n
            of_others += n if other < lane else 0
            if awaited is not None:
                awaiting[awaited] = awaiting.get(awaited, 0.0) + n
    return Ahead(in_all, awaiting, of_others)


@dataclass(frozen=True, slots=True)
class Outlook:
    """How long a turn will wait, in seconds, and how many of its kind begin a second."""

    wait_s: float
    starts_per_s: float


def outlook(
    view: LineView,
    pace: Pace,
    lane: Lane,
    *,
    ahead: Ahead,
    pools: Sequence[Pool],
    awaited: str | None,
) -> Outlook:
    """What a turn of this lane has before it that waits for the model `awaited`, or for any.

    Each pool has its slots' share of the starts. With one pool and without priorities it is what
    `wait_s` says.
    """
    assert pools
    n_slots = sum(pool.slots for pool in pools)
    ranked = ranked_share(pools)
    per_s = starts_per_s(view, pace, lane, n_slots=n_slots, ranked=ranked)
    n_in_the_way = sum(view.in_the_way(lane, ranked).values())
    ahead = ahead.in_its_lane(n_slots - n_in_the_way)
    share = n_in_the_way / view.running if view.running else 0.0
    on = {name: share * n for name, n in view.running_on.items()}
    openings = [_opening(on, pool, ahead, per_s * pool.slots / n_slots) for pool in pools]
    # Those of whom it is not known where they run, or wait, may do so anywhere.
    n_placed = sum(_count(on, pool) for pool in pools)
    n_bound = sum(_count(ahead.awaiting, pool) for pool in pools)
    n_anywhere = max(0.0, ahead.in_all - n_bound) + n_in_the_way - n_placed
    own = [one for one, pool in zip(openings, pools, strict=True) if awaited in pool.names]
    if not own:
        return Outlook(through_s(openings, n_anywhere + 1), per_s)
    (opening,) = own
    n_there = min(n_anywhere, opening.passed(through_s(openings, n_anywhere)))
    wait = (n_there + 1 - opening.spare) / opening.per_s
    return Outlook(max(0.0, wait), opening.per_s)


def _opening(on: Mapping[str, float], pool: Pool, ahead: Ahead, per_s: float) -> Opening:
    n_free = pool.slots - _count(on, pool)
    return Opening(n_free - _count(ahead.awaiting, pool), per_s)


def _count(counts: Mapping[str, float], pool: Pool) -> float:
    return sum(n for name, n in counts.items() if name in pool.names)
