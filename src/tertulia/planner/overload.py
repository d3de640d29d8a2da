"""The day the accelerators run out: one shared pool, twice the messages it can answer.

Plans, costs, lanes, waits and the ladder are the service's own code; only machines and people are
invented. Time is virtual and chance comes from a seed: the same scene always ends the same way.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Final

from tertulia.core.choice import AUTO, SMALL, Choice, Wish, choose_model
from tertulia.core.ladder import TOP, Calm, Foothold, Terms, may_step, wanted_rung
from tertulia.core.load import AVERAGED_S, Demand, Load, Sight, Slot, Tally, load_of
from tertulia.core.plans import Plan
from tertulia.core.quota import cost
from tertulia.core.types import Lane, ModelState, Reason, Usage
from tertulia.core.waiting import LaneState, LineView, Pace, rank_of, virtual_time, wait_s

LARGE: Final = "large"
_POOL: Final = "shared"

# Accelerator seconds of the two models of the planned fleet, 70B on four and 8B on one: to read the
# new tokens of a typical prompt, and to write one token. A reply of 400 tokens takes 0.67 and 0.18.
_READING_S: Final = {LARGE: 0.1365, SMALL: 0.0156}
_WRITING_S: Final = {LARGE: 0.5333 / 400, SMALL: 0.16 / 400}
# The typical message: 390 tokens new, 2,610 cached, 400 of answer.
_PROMPT: Final = Usage(input=3_000, cached=2_610)
ANSWER_TOKENS: Final = 400

PLUS: Final = Plan(name="plus", lane=Lane.PLUS, window_tokens=32_000, answer_tokens=2_000)
FREE: Final = Plan(name="free", window_tokens=8_000, answer_tokens=1_000, ladder=True)
# As often as the service looks at its line, and at its ladder.
_LINE_S: Final = 1.0
_LOOK_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Policy:
    """What is switched on. `rung` pins the ladder there; None lets it step by itself.

    Without `paid_first` there is one lane. `drops_dead`: a turn whose user has left leaves the line
    before it touches an accelerator. `has_door`: who can't start within the terms is refused.
    """

    paid_first: bool = True
    rung: int | None = None
    drops_dead: bool = True
    has_door: bool = True


OFF: Final = Policy(paid_first=False, rung=0, has_door=False)
PAID_FIRST: Final = Policy(rung=0, has_door=False)
TO_SMALL: Final = Policy(rung=1, has_door=False)
SHORT: Final = Policy(rung=2, has_door=False)
ALL: Final = Policy(rung=TOP)
LIVE: Final = Policy()


@dataclass(frozen=True, slots=True)
class Scene:
    """A pool, who asks it, and for how long. `messages_per_s` is asked at each moment.

    What arrives in the first `warm_s` is not counted, nor what arrives too late to be decided.
    """

    messages_per_s: Callable[[float], float]
    accelerators: int
    seconds: float
    warm_s: float = 0.0
    free_share: float = 0.6
    easy_share: float = 0.7
    patience_s: float = 10.0
    n_users: int = 1_000_000
    seed: int = 1


@dataclass(slots=True)
class Fate:
    """What became of the messages of one plan. `waits_s` are those of the turns that began."""

    n: int = 0
    n_refused: int = 0
    n_timed_out: int = 0
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
    def wait_p95_s(self) -> float:
        """How long those that began had waited."""
        return quantiles(self.waits_s, n=20)[-1] if len(self.waits_s) > 1 else 0.0


@dataclass(slots=True)
class Story:
    """How a scene went. `steps` are the rungs that were taken, each with its time.

    `loads` are what the ladder saw, `busy` is the share of the pool's time that was used.
    """

    plus: Fate = field(default_factory=Fate)
    free: Fate = field(default_factory=Fate)
    steps: list[tuple[float, int]] = field(default_factory=list)
    loads: list[tuple[float, Load]] = field(default_factory=list)
    busy: float = 0.0

    @property
    def timed_out(self) -> float:
        """The share of all messages that nobody answered in time."""
        n_timed_out = self.plus.n_timed_out + self.free.n_timed_out
        return n_timed_out / max(1, self.plus.n + self.free.n)


def tell(scene: Scene, policy: Policy) -> Story:
    """Plays the scene under the policy."""
    return _Stage(scene, policy).play()


@dataclass(frozen=True, slots=True)
class _Message:
    """One question. `fate` is None where it does not count."""

    at: float
    plan: Plan
    lane: Lane
    owner: int
    is_easy: bool
    answer_tokens: int
    is_short: bool
    fate: Fate | None


class _Stage:
    """The pool, the line before it and the ladder, as one scene plays.

    Invariant: nobody who could begin waits: after each event either no accelerator is free or no
    one waits.
    """

    def __init__(self, scene: Scene, policy: Policy) -> None:
        self._scene = scene
        self._policy = policy
        self._dice = random.Random(scene.seed)
        self._story = Story()
        self._now = 0.0
        self._n_free = scene.accelerators
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._n_events = 0
        self._waiting: dict[Lane, list[tuple[int, int, _Message]]] = {lane: [] for lane in Lane}
        self._running = dict.fromkeys(Lane, 0)
        self._begun = dict.fromkeys(Lane, 0)
        self._tags: dict[tuple[Lane, int], int] = {}
        self._highest_tag = dict.fromkeys(Lane, 0)
        self._pace = Pace()
        self._tally = Tally(0.0)
        self._foothold = Foothold(policy.rung or 0)
        self._stepped_at = 0.0
        self._calm = Calm()
        self._choices = _choices()

    def play(self) -> Story:
        """All of it."""
        self._at(0.0, self._ask)
        self._at(_LINE_S, self._look_at_line)
        self._at(_LOOK_S, self._look_at_load)
        while self._events and self._events[0][0] < self._scene.seconds:
            self._now, _, happens = heapq.heappop(self._events)
            happens()
        for line in self._waiting.values():
            for _, _, message in line:
                self._time_out(message)
        counted_s = self._scene.seconds - self._scene.warm_s
        self._story.busy /= self._scene.accelerators * counted_s
        return self._story

    def _at(self, at: float, happens: Callable[[], None]) -> None:
        self._n_events += 1
        heapq.heappush(self._events, (at, self._n_events, happens))

    # People.

    def _ask(self) -> None:
        rate = self._scene.messages_per_s(self._now)
        self._at(self._now + self._dice.expovariate(rate), self._ask)
        message = self._message()
        if message.fate is not None:
            message.fate.n += 1
        terms = Terms(self._foothold.rung, message.plan)
        if self._policy.has_door and self._wait_s(message.lane) > terms.starts_within_s:
            self._tally.refused()
            if message.fate is not None:
                message.fate.n_refused += 1
            return
        self._queue(message)
        self._begin_next()

    def _message(self) -> _Message:
        scene, dice = self._scene, self._dice
        plan = FREE if dice.random() < scene.free_share else PLUS
        lane = plan.lane if self._policy.paid_first else Lane.FREE
        terms = Terms(self._foothold.rung, plan)
        answer_tokens, notices = terms.shortened(ANSWER_TOKENS)
        counts = scene.warm_s <= self._now < scene.seconds - scene.patience_s
        fate = self._story.free if plan is FREE else self._story.plus
        return _Message(
            at=self._now,
            plan=plan,
            lane=lane,
            owner=dice.randrange(scene.n_users),
            is_easy=dice.random() < scene.easy_share,
            answer_tokens=answer_tokens,
            is_short=bool(notices),
            fate=fate if counts else None,
        )

    # The line.

    def _wait_s(self, lane: Lane) -> float:
        if self._n_free:
            return 0.0
        view = self._view()
        place = view.queued_before(lane) + 1
        return wait_s(view, self._pace, lane, place=place, n_slots=self._scene.accelerators)

    def _queue(self, message: _Message) -> None:
        lane, line = message.lane, self._waiting[message.lane]
        who = (lane, message.owner)
        floor = virtual_time(line[0][0] if line else None, self._highest_tag[lane])
        rank = rank_of(tag=self._tags.get(who, 0), floor=floor, last=None)
        usage = Usage(_PROMPT.input, _PROMPT.cached, message.answer_tokens)
        tag = self._tags[who] = rank + cost("units", usage)
        self._highest_tag[lane] = max(self._highest_tag[lane], tag)
        heapq.heappush(line, (rank, self._n_events, message))

    def _begin_next(self) -> None:
        while self._n_free:
            line = next((line for line in self._waiting.values() if line), None)
            if line is None:
                return
            _, _, message = heapq.heappop(line)
            if self._now - message.at > self._scene.patience_s:
                self._time_out(message)
                if self._policy.drops_dead:
                    continue
            elif message.fate is not None:
                message.fate.waits_s.append(self._now - message.at)
            self._begin(message)

    def _time_out(self, message: _Message) -> None:
        if message.fate is not None:
            message.fate.n_timed_out += 1

    def _look_at_line(self) -> None:
        self._at(self._now + _LINE_S, self._look_at_line)
        self._pace = self._pace.after(self._view())

    def _view(self) -> LineView:
        lanes = {
            lane: LaneState(len(self._waiting[lane]), self._running[lane], self._begun[lane])
            for lane in Lane
        }
        return LineView(self._now, lanes)

    # The pool.

    def _begin(self, message: _Message) -> None:
        terms = Terms(self._foothold.rung, message.plan)
        choice = self._choices[message.is_easy, terms.goes_to_small]
        model = choice.model.name
        seconds = _READING_S[model] + _WRITING_S[model] * message.answer_tokens
        home = LARGE if choice.reason is Reason.LADDER else model
        slot = Slot(model, home, message.plan.ladder, message.is_short)
        self._n_free -= 1
        self._running[message.lane] += 1
        self._begun[message.lane] += 1
        self._tally.began(slot, self._now)
        until = min(self._now + seconds, self._scene.seconds)
        self._story.busy += max(0.0, until - max(self._now, self._scene.warm_s))
        self._at(self._now + seconds, lambda: self._end(message.lane, slot, seconds))

    def _end(self, lane: Lane, slot: Slot, seconds: float) -> None:
        self._n_free += 1
        self._running[lane] -= 1
        self._tally.ended(slot, self._now, seconds=seconds)
        self._begin_next()

    # The ladder.

    def _look_at_load(self) -> None:
        self._at(self._now + _LOOK_S, self._look_at_load)
        waiting = sum(len(line) for line in self._waiting.values())
        last = self._story.loads[-1][1] if self._story.loads else None
        over_s = AVERAGED_S if last is None else last.averaged_s
        told = self._tally.told(self._now, small=SMALL, waiting=waiting, over_s=over_s)
        sight = _in_one_pool(told)
        load = load_of([sight], {_POOL: self._scene.accelerators})
        assert load is not None
        self._story.loads.append((self._now, load))
        if self._policy.rung is not None:
            return
        seen = Foothold(self._foothold.rung, self._now - self._stepped_at, self._foothold.changes)
        self._calm = self._calm.after(load, _LOOK_S)
        to = wanted_rung(seen.rung, load, self._calm)
        if may_step(seen, seen=seen, to=to):
            self._foothold = Foothold(to, 0.0, seen.changes + 1)
            self._stepped_at = self._now
            self._story.steps.append((self._now, to))


def _choices() -> dict[tuple[bool, bool], Choice]:
    """Who answers an easy question or a hard one, with and without the ladder's word."""
    # In one pool a model has room as long as the pool has: what waits, waits in the line.
    models = [ModelState(name, name, "ready", room=1) for name in (LARGE, SMALL)]
    found = {}
    for is_easy in (True, False):
        for is_lowered in (True, False):
            lowered = Reason.LADDER if is_lowered else None
            choice = choose_model(Wish(AUTO, easy=is_easy, lowered=lowered), models)
            assert choice is not None
            found[is_easy, is_lowered] = choice
    return found


def _in_one_pool(sight: Sight) -> Sight:
    """What is seen where both models are on the same accelerators."""
    together = [0.0, 0.0, 0.0]
    for one in sight.demand:
        together = [sum(pair) for pair in zip(together, one.slots, strict=True)]
    demand = Demand(_POOL, (together[0], together[1], together[2]))
    return Sight((demand,), sight.begun_per_s, sight.refused_per_s, sight.waiting)
