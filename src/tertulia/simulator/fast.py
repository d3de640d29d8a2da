"""The fast engine: the same policies at the same moments, and between them one tight loop.

Once a second (less often in a long run) the service's own line, load and ladder are looked at, and
what they decide is handed to the loop as numbers. With numba (`pip install
'tertulia[simulate]'`) the loop is compiled; without it plain Python runs the same source, to the
same results.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from tertulia.core.choice import SMALL
from tertulia.core.ladder import Terms
from tertulia.core.load import Slot, Spell
from tertulia.core.plans import FREE
from tertulia.core.quota import cost
from tertulia.core.types import Lane, Reason, Usage
from tertulia.core.waiting import LaneState, LineView, Pace
from tertulia.simulator import loop
from tertulia.simulator.cell import LARGE, choices
from tertulia.simulator.line import LineTooLong
from tertulia.simulator.loop import Beat, Rules, State
from tertulia.simulator.machine import Machine, has_numba
from tertulia.simulator.outcome import SAMPLES, Fate, Outcome, Sample
from tertulia.simulator.people import PLUS
from tertulia.simulator.scaling import Scaler
from tertulia.simulator.scenario import Scenario
from tertulia.simulator.traffic import rate_of
from tertulia.simulator.watch import LOOK_S, Watch, ladder_of

# In the order of their lanes.
_NAMES: Final = (PLUS, FREE)
_LANES: Final = (Lane.PLUS, Lane.FREE)
MOST_WAITING: Final = 1 << 20
_BEAT_S: Final = 1.0
# A run of a day would spend its time on looks; the line's pace bears looks 5 s apart at most.
_LONG_S: Final = 6 * 3_600.0
_LONG_BEAT_S: Final = 4.0
# Of a histogram's waits a report needs no more.
_MOST_WAITS: Final = 20_000


def play_fast(scenario: Scenario, *, is_compiled: bool | None = None) -> Outcome:
    """How the scenario goes; `is_compiled` None: if numba is there."""
    is_compiled = has_numba() if is_compiled is None else is_compiled
    return _Run(scenario, Machine(is_compiled)).play()


class _Run:
    """One run. Invariant: between two beats `_state` holds all that the loop needs to go on."""

    def __init__(self, scenario: Scenario, machine: Machine) -> None:
        self._scenario, self._machine = scenario, machine
        self._beat_s = _LONG_BEAT_S if scenario.seconds > _LONG_S else _BEAT_S
        self._dice = np.random.Generator(np.random.PCG64(scenario.seed))
        self._rate = rate_of(scenario.traffic)
        self._plans = [scenario.plan(name) for name in _NAMES]
        policy = scenario.policy
        # The ladder is looked at as often as live, or at every beat of a long run.
        self._look_s = max(LOOK_S, self._beat_s)
        self._ladder = ladder_of(policy.ladder, policy.plain_gap, look_s=self._look_s)
        self._next_look, self._used_s, self._had_s = self._look_s, 0.0, 0.0
        self._watch, self._pace = Watch(), Pace()
        self._outcome = Outcome()
        self._scaler = Scaler(scenario) if scenario.scaling.kind != "fixed" else None
        self._size = self._scaler.first if self._scaler else scenario.fleet.accelerators
        self._slots = _slots(scenario)
        self._busy_s = self._there_s = self._held_s = 0.0
        self._refused_before = 0
        self._kind_s = [0.0] * loop.KINDS
        self._n_asked = np.zeros((2, loop.PLANS), np.int64)
        self._rules = self._make_rules()
        self._state = self._make_state()
        # The loop changes what is in them, so that they need to be made once only.
        self._given = machine.record(self._rules), machine.record(self._state)
        self._kinds_seen = self._kinds_now()

    def _make_rules(self) -> Rules:
        machine, scenario, people = self._machine, self._scenario, self._scenario.people
        timing = {LARGE: scenario.fleet.large.timing, SMALL: scenario.fleet.small.timing}
        new = people.prompt_tokens - people.cached_tokens
        lanes = (0, 1) if scenario.policy.paid_first else (1, 1)
        self._lanes = [lanes[(kind % loop.LOWERED) // 4] for kind in range(loop.KINDS)]
        base = [timing[one.model].seconds(new_tokens=new, answer_tokens=0) for one in self._slots]
        write = [timing[one.model].write_s for one in self._slots]
        return Rules(
            lane_of=lanes,
            lane_of_kind=machine.given(np.array(self._lanes)),
            base=machine.given(np.array(base)),
            write=machine.given(np.array(write)),
            count_from=float(scenario.warm_s),
            count_until=scenario.seconds - min(people.patience_s, scenario.seconds / 2),
            patience_s=float(people.patience_s),
            prompt_cost=float(cost("units", Usage(people.prompt_tokens, people.cached_tokens, 0))),
            token_cost=float(cost("units", Usage(output=1))),
            is_fair=scenario.policy.fair,
            drops_dead=scenario.policy.drops_dead,
        )

    def _make_state(self) -> State:
        machine, scenario = self._machine, self._scenario
        integers, floats = machine.integers, machine.floats
        n = integers(loop.IS_FULL + 1)
        n[loop.FREE] = MOST_WAITING
        n_tags = scenario.people.users + 1 if scenario.policy.fair else 1
        return State(
            n=n,
            waits=floats(loop.LONGEST + 1),
            ends=machine.heap(max(self._size, scenario.scaling.most if self._scaler else 0)),
            lines=(machine.heap(MOST_WAITING), machine.heap(MOST_WAITING)),
            asked_at=floats(MOST_WAITING),
            kind=integers(MOST_WAITING),
            answer=floats(MOST_WAITING),
            counts=integers(MOST_WAITING),
            free=machine.given(np.arange(MOST_WAITING)),
            line=integers(len(_LANES)),
            running=integers(len(_LANES)),
            tags=(floats(n_tags), floats(n_tags)),
            highest_tag=floats(len(_LANES)),
            refused=integers(loop.PLANS),
            timed_out=integers(loop.PLANS),
            bins=(integers(loop.BINS), integers(loop.BINS)),
            begun=integers(loop.KINDS),
            ended=integers(loop.KINDS),
            held_s=floats(loop.KINDS),
            seconds=floats(loop.KINDS),
            counted=integers(loop.KINDS),
        )

    def play(self) -> Outcome:
        scenario, now = self._scenario, 0.0
        sample_s = max(self._beat_s, scenario.seconds / SAMPLES)
        next_sample, before = sample_s, self._totals()
        while now < scenario.seconds - 1e-9:
            until = min(scenario.seconds, now + self._beat_s)
            self._play_beat(now, until)
            if until >= next_sample - 1e-9:
                before = self._sample(until, until - next_sample + sample_s, before)
                next_sample += sample_s
            now = until
        return self._ended()

    def _play_beat(self, now: float, until: float) -> None:
        rules, state = self._given
        for kind in range(loop.KINDS):
            self._state.held_s[kind] = 0.0
        beat = self._machine.record(self._beat(now, until))
        self._machine.play(rules, beat, self._come(now, until), state)
        if self._state.n[loop.IS_FULL]:
            raise LineTooLong(f"more than {MOST_WAITING:,} messages wait")
        self._learn(now, until)

    def _beat(self, now: float, until: float) -> Beat:
        """What the service's policies say now, as numbers."""
        view, size = self._pace.last or self._view(now), self._size
        plus, free = (Terms(self._ladder.rung, plan) for plan in self._plans)
        return Beat(
            begins=now,
            until=until,
            size=size,
            limit_s=(self._limit_s(plus), self._limit_s(free)),
            cap=(float(plus.answer_tokens), float(free.answer_tokens)),
            longest=(float(plus.plan.answer_tokens), float(free.plan.answer_tokens)),
            lowered=(int(plus.goes_to_small), int(free.goes_to_small)),
            slots=(
                float(max(1, size)),
                max(1.0, float(size - self._pace.running(Lane.PLUS, view))),
            ),
            reply_s=(self._pace.reply_s(Lane.PLUS), self._pace.reply_s(Lane.FREE)),
        )

    def _limit_s(self, terms: Terms) -> float:
        return terms.starts_within_s if self._scenario.policy.door else math.inf

    def _learn(self, now: float, until: float) -> None:
        """Tells the service's policies what has happened since the last beat."""
        held_in_all = 0.0
        state, held = self._state, self._machine.taken(self._state.held_s)
        before, self._kinds_seen = self._kinds_seen, self._kinds_now()
        for kind, after in enumerate(self._kinds_seen):
            n_begun, n_ended = after[0] - before[kind][0], after[1] - before[kind][1]
            held_s = held[kind] + (after[0] - after[1]) * (until - now)
            if n_begun:
                self._kind_s[kind] = (after[2] - before[kind][2]) / n_begun
            if n_begun or n_ended or held_s:
                spell = Spell(n_begun, n_ended, held_s, self._kind_s[kind])
                self._watch.counted(self._slots[kind], until, spell)
                held_in_all += held_s
        there_s = max(self._size, int(state.n[loop.BUSY])) * (until - now)
        if now >= self._scenario.warm_s:
            self._busy_s += held_in_all
            self._there_s += there_s
        self._watch.refused(int(state.n[loop.REFUSED]) - self._refused_before)
        self._refused_before = int(state.n[loop.REFUSED])
        self._pace = self._pace.after(self._view(until), n_slots=self._size, ranked=0.0)
        self._outcome.most_waiting = max(self._outcome.most_waiting, self._n_waiting)
        self._held_s += held_in_all
        self._used_s += held_in_all
        self._had_s += there_s
        if self._next_look - 1e-9 <= until < self._scenario.seconds:
            self._next_look = until + self._look_s
            self._look(until)

    def _look(self, now: float) -> None:
        """At the load: the ladder's look, and the scaler's."""
        load = self._watch.look(now, waiting=self._n_waiting, n_slots=self._size)
        busy = self._used_s / self._had_s if self._had_s else 1.0
        self._used_s = self._had_s = 0.0
        if self._ladder.look(now, load, busy):
            self._outcome.steps.append((now, self._ladder.rung, 0))
        if self._scaler and now % self._scenario.scaling.every_s < self._look_s:
            self._size = self._scaler.look(
                now, size=self._size, busy_s=self._held_s, waiting=self._n_waiting
            )

    def _kinds_now(self) -> list[tuple[int, int, float]]:
        state, taken = self._state, self._machine.taken
        return list(zip(taken(state.begun), taken(state.ended), taken(state.seconds), strict=True))

    def _come(self, now: float, until: float) -> tuple[Any, ...]:
        """Who comes in this beat, drawn at once."""
        dice, people, given = self._dice, self._scenario.people, self._machine.given
        seconds = until - now
        n = int(dice.poisson(self._rate(now + seconds / 2) * seconds))
        at = now + seconds * np.sort(dice.random(n))
        plan = (dice.random(n) < people.free_share).astype(np.int64)
        counts = (at >= self._rules.count_from) & (at < self._rules.count_until)
        self._n_asked[0] += np.bincount(plan, minlength=loop.PLANS)
        self._n_asked[1] += np.bincount(plan[counts], minlength=loop.PLANS)
        easy = (dice.random(n) < people.easy_share).astype(np.int64)
        owner = dice.integers(1, people.users + 1, n)
        if self._rules.is_fair:
            self._machine.fetch(self._state.tags, owner, np.take(self._rules.lane_of, plan))
        if people.answer_spread:
            sigma = people.answer_spread
            middle = math.log(people.answer_tokens) - sigma * sigma / 2
            answer = np.maximum(1.0, np.rint(dice.lognormal(middle, sigma, n)))
        else:
            answer = np.full(n, float(people.answer_tokens))
        return (given(at), given(plan), given(easy), given(owner), given(answer))

    def _view(self, now: float) -> LineView:
        line, running = self._state.line, self._state.running
        lanes = {
            lane: LaneState(int(line[i]), int(running[i]), self._n_begun(i))
            for i, lane in enumerate(_LANES)
        }
        return LineView(now, lanes)

    def _n_begun(self, lane: int) -> int:
        seen = zip(self._kinds_seen, self._lanes, strict=True)
        return sum(begun for (begun, _, _), one in seen if one == lane)

    @property
    def _n_waiting(self) -> int:
        return int(self._state.line[0]) + int(self._state.line[1])

    # What is seen.

    def _totals(self) -> tuple[float, ...]:
        n, waits = self._state.n, self._state.waits
        asked, begun = float(self._n_asked[0].sum()), float(sum(self._state.begun))
        away = (float(n[loop.REFUSED]), float(n[loop.TIMED_OUT]))
        return (asked, begun, *away, float(waits[loop.TOGETHER]))

    def _sample(self, now: float, seconds: float, before: tuple[float, ...]) -> tuple[float, ...]:
        after = self._totals()
        asked, begun, refused, timed_out, waited = (
            b - a for a, b in zip(before, after, strict=True)
        )
        load, rung = self._watch.load, self._ladder.rung
        self._outcome.samples.append(
            Sample(
                at=now,
                asked_per_s=asked / seconds,
                begun_per_s=begun / seconds,
                refused_per_s=refused / seconds,
                timed_out_per_s=timed_out / seconds,
                waiting=self._n_waiting,
                busy=int(self._state.n[loop.BUSY]) / max(1, self._size),
                rung=rung,
                load=load.on_rung[0] if load else 0.0,
                seen=load.on_rung[min(2, rung)] if load else 0.0,
                accelerators=self._size,
                wait_s=waited / max(1.0, begun),
                cold=0.0,
            )
        )
        return after

    def _ended(self) -> Outcome:
        outcome = self._outcome
        for plan, name in enumerate(_NAMES):
            outcome.groups[name] = self._fate(plan)
        self._count_those_left()
        outcome.longest_wait_s = float(self._state.waits[loop.LONGEST])
        outcome.accelerator_s = self._there_s
        scaler, fixed_s = self._scaler, self._size * self._scenario.seconds
        outcome.paid_s = scaler.paid_s if scaler else fixed_s
        outcome.busy = self._busy_s / max(1e-9, self._there_s)
        return outcome

    def _fate(self, plan: int) -> Fate:
        state = self._state
        own = [
            (int(state.counted[kind]), slot, bool(kind % 2))
            for kind, slot in enumerate(self._slots)
            if (kind % loop.LOWERED) // 4 == plan
        ]
        n_begun = sum(n for n, _, _ in own)
        return Fate(
            n=int(self._n_asked[1][plan]),
            n_refused=int(state.refused[plan]),
            n_timed_out=int(state.timed_out[plan]),
            n_begun=n_begun,
            n_small=sum(n for n, slot, _ in own if slot.model == SMALL),
            n_short=sum(n for n, _, is_short in own if is_short),
            waits_s=self._waits(plan, n_begun),
        )

    def _waits(self, plan: int, n: int) -> list[float]:
        """The waits of the histogram, thinned where there are very many, in their order."""
        every = max(1, n // _MOST_WAITS)
        waits: list[float] = []
        bins = [int(found) for found in self._state.bins[plan]]
        bins[0] = n - sum(bins)  # those that did not wait
        n_seen = 0
        for place, found in enumerate(bins):
            before, n_seen = n_seen, n_seen + found
            # Each is put in the middle of its hundredth; who did not wait did not wait.
            wait_s = max(0.0, place - 0.5) / loop.BINS_PER_S
            waits += [wait_s] * (n_seen // every - before // every)
        return waits

    def _count_those_left(self) -> None:
        state = self._state
        n_free = int(state.n[loop.FREE])
        if n_free == MOST_WAITING:
            return
        is_free = {int(place) for place in state.free[:n_free]}
        for place in range(MOST_WAITING):
            if place not in is_free and state.counts[place]:
                self._outcome.groups[_NAMES[int(state.kind[place]) // 4]].n_timed_out += 1


def _slots(scenario: Scenario) -> tuple[Slot, ...]:
    """What a reply of each kind holds, by the service's own choice of the model."""
    found, names = [], choices()
    for kind in range(loop.KINDS):
        plan = scenario.plan(_NAMES[(kind % loop.LOWERED) // 4])
        choice = names[bool((kind // 2) % 2), kind >= loop.LOWERED]
        model = choice.model.name
        home = LARGE if choice.reason is Reason.LADDER else model
        found.append(Slot(model, home, plan.ladder, is_short=bool(kind % 2)))
    return tuple(found)
