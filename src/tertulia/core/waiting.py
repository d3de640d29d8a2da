"""The line in front of the engines: what may be claimed, and how long it takes.

Every count, cost and moment is an argument; nothing here looks at a clock or keeps a queue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from tertulia.core.pools import Opening, Pool, full_for, kept_free, ranked_share, through_s
from tertulia.core.types import Lane, ModelState

# What is learned of the length of replies fades by half in so many seconds: some replies long, so
# that a burst of young ones does not count for all, and short enough to follow what changes.
HALF_S: Final = 60.0
# How many run of a lane goes up and down by chance, by the root of their number: over a wait that
# evens out, and what is seen at one moment would be a worse guess than what was seen of late. What
# was seen fades by half in so many seconds, or in more where chance would move what they leave of
# all slots by more than the part `UNSTEADY`; but not in ever more, as people come and go.
STEADY_S: Final = 10.0
STEADIEST_S: Final = 60.0
UNSTEADY: Final = 0.1
# Before anything was seen, a reply is taken to last so long, and is believed like so many replies.
REPLY_S: Final = 10.0
BELIEVED: Final = 4.0
# Two looks at the line that lie further apart say nothing of what went on between them.
GAP_S: Final = 5.0


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

    def holding(self, lane: Lane, *, n_slots: int, ranked: float) -> float:
        """How many of this lane hold a slot. At engines that know priorities, which are the share
        `ranked` of all slots, those do not that were put aside for lanes before it."""
        n_running = self.lane(lane).running
        n_before = sum(state.running for other, state in self.lanes.items() if other < lane)
        n_aside = max(0, n_running - max(0, n_slots - n_before))
        return n_running - ranked * n_aside

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
    """Of one lane: how many seconds its turns held a slot, all together, and how many of them
    ended; how many seconds they ran, put aside or not, and in how many seconds that was seen."""

    held_s: float = 0.0
    ended: float = 0.0
    run_s: float = 0.0
    steady_s: float = 0.0


_UNSEEN: Final = _Seen()


@dataclass(frozen=True, slots=True)
class Pace:
    """How long replies hold a slot, and how many run as a rule, lane by lane: learned from one look
    at the line after another.

    Seconds held over turns ended: the right guess also while most of those that run have not ended
    yet. What was seen fades, and a little belief in `REPLY_S` stays.
    """

    last: LineView | None = None
    seen: Mapping[Lane, _Seen] = field(default_factory=lambda: MappingProxyType({}))

    def after(self, view: LineView, *, n_slots: int = 0, ranked: float = 0.0) -> Pace:
        """What is known once `view` has been seen too; one that is not newer changes nothing.
        Without slots (`ranked`: their share at engines with priorities) all that run are taken to
        hold one."""
        if self.last is None:
            return Pace(view, self.seen)
        elapsed_s = view.at - self.last.at
        if elapsed_s <= 0:
            return self
        if elapsed_s > GAP_S:
            return Pace(view, self.seen)
        seen = {lane: self._learned(lane, view, elapsed_s, n_slots, ranked) for lane in Lane}
        return Pace(view, seen)

    def reply_s(self, lane: Lane) -> float:
        """How long a reply of this lane holds a slot, from its claim to its end. Of a lane of which
        little was seen it is believed that its replies are like those of all."""
        held_s = sum(one.held_s for one in self.seen.values())
        ended = sum(one.ended for one in self.seen.values())
        usual_s = (BELIEVED * REPLY_S + held_s) / (BELIEVED + ended)
        seen = self.seen.get(lane, _UNSEEN)
        return (BELIEVED * usual_s + seen.held_s) / (BELIEVED + seen.ended)

    def running(self, lane: Lane, view: LineView) -> float:
        """How many turns of this lane run as a rule; what `view` shows if nothing is known."""
        seen = self.seen.get(lane, _UNSEEN)
        return seen.run_s / seen.steady_s if seen.steady_s else view.lane(lane).running

    def _learned(
        self, lane: Lane, view: LineView, elapsed_s: float, n_slots: int, ranked: float
    ) -> _Seen:
        assert self.last is not None
        known = self.seen.get(lane, _UNSEEN)
        before, after = self.last.lane(lane), view.lane(lane)
        ended = max(0, (after.begun - before.begun) - (after.running - before.running))
        n_held = sum(
            look.holding(lane, n_slots=n_slots, ranked=ranked) for look in (self.last, view)
        )
        keeps = 0.5 ** (elapsed_s / HALF_S)
        keeps_steady = 0.5 ** (elapsed_s / self._steady_s(lane, self.last, n_slots))
        return _Seen(
            keeps * known.held_s + elapsed_s * n_held / 2,
            keeps * known.ended + ended,
            keeps_steady * known.run_s + elapsed_s * (before.running + after.running) / 2,
            keeps_steady * known.steady_s + elapsed_s,
        )

    def _steady_s(self, lane: Lane, view: LineView, n_slots: int) -> float:
        """Over how long it evens out how many of this lane run. An average over some time varies by
        the root of twice their number, times how long they last, through that time."""
        if not n_slots:
            return STEADY_S
        n_running = self.running(lane, view)
        n_off = UNSTEADY * max(1.0, n_slots - n_running)
        evens_out_s = 2 * n_running * self.reply_s(lane) / n_off**2
        return min(STEADIEST_S, max(STEADY_S, evens_out_s))


def starts_per_s(
    view: LineView, pace: Pace, lane: Lane, *, n_slots: int, ranked: float = 0.0
) -> float:
    """How many turns of a lane can begin a second: as many as end in the slots that the lanes
    before it leave. Never 0: paid work does not fill an engine for ever."""
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
    n_now = sum(view.in_the_way(lane, ranked).values())
    now = _outlook(view, per_s, n_now, ahead, pools, awaited)
    if not ranked or not now.wait_s:
        return now
    # Where those of lanes before put others aside they come and go at once, so that soon they will
    # be as many as they are as a rule. Who finds no slot waits for one to come free at least.
    before = [other for other in Lane if other < lane]
    n_off = ranked * sum(pace.running(other, view) - view.lane(other).running for other in before)
    soon = _outlook(view, per_s, max(0.0, n_now + n_off), ahead, pools, awaited)
    return replace(now, wait_s=max(min(now.wait_s, 1 / now.starts_per_s), soon.wait_s))


def _outlook(
    view: LineView,
    per_s: float,
    n_in_the_way: float,
    ahead: Ahead,
    pools: Sequence[Pool],
    awaited: str | None,
) -> Outlook:
    n_slots = sum(pool.slots for pool in pools)
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
