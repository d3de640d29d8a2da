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
from tertulia.simulator import heaps, loop
from tertulia.simulator.cell import LARGE, choices
from tertulia.simulator.line import LineTooLong
from tertulia.simulator.loop import F, N
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
_NO_LIMIT: Final = math.inf


def has_numba() -> bool:
    """Whether the loop can be compiled here."""
    try:
        import numba  # noqa: F401  # asked whether it is there
    except ImportError:
        return False
    return True


def play_fast(scenario: Scenario, *, is_compiled: bool | None = None) -> Outcome:
    """How the scenario goes; `is_compiled` None: if numba is there."""
    is_compiled = has_numba() if is_compiled is None else is_compiled
    return _Run(scenario, _Machine(is_compiled)).play()


class _Machine:
    """What the loop runs on: lists, or arrays and a compiler."""

    def __init__(self, is_compiled: bool) -> None:
        self.is_compiled = is_compiled
        if is_compiled:
            self.play, self.heap = compiled(), heaps.array_heap
        else:
            self.play = loop.build(lambda f: f, heaps.plain_push, heaps.plain_pop)
            self.heap = heaps.plain_heap

    def integers(self, n: int) -> Any:
        """So many zeros."""
        return np.zeros(n, np.int64) if self.is_compiled else [0] * n

    def floats(self, n: int) -> Any:
        """So many zeros."""
        return np.zeros(n, np.float64) if self.is_compiled else [0.0] * n

    def given(self, values: Any) -> Any:
        """An array as the loop takes it."""
        return values if self.is_compiled else values.tolist()


_COMPILED: list[Any] = []


def compiled() -> Any:
    """The loop in machine code; made once a process, which takes some seconds."""
    if not _COMPILED:
        import numba

        jit = numba.njit(nogil=True)
        _COMPILED.append(loop.build(jit, jit(heaps.array_push), jit(heaps.array_pop)))
    return _COMPILED[0]


class _Run:
    """One run. Invariant: between two beats `_n` and `_f` hold all that the loop needs to go on."""

    def __init__(self, scenario: Scenario, machine: _Machine) -> None:
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
        self._lanes = [lane if policy.paid_first else 1 for lane in range(loop.PLANS)]
        self._slots = _slots(scenario)
        self._busy_s = self._there_s = 0.0
        self._refused_before = 0
        self._kind_s = [0.0] * loop.KINDS
        self._make_state()

    def _make_state(self) -> None:
        machine, scenario = self._machine, self._scenario
        self._n, self._f = machine.integers(N.FULL + 1), machine.floats(F.LONGEST_WAIT_S + 1)
        self._n_asked = np.zeros((2, loop.PLANS), np.int64)
        self._bins = tuple(machine.integers(loop.BINS) for _ in _NAMES)
        most = max(self._size, scenario.scaling.most if self._scaler else 0)
        self._ends = machine.heap(most)
        self._lines = tuple(machine.heap(MOST_WAITING) for _ in _LANES)
        self._store = (
            machine.floats(MOST_WAITING),
            machine.integers(MOST_WAITING),
            machine.floats(MOST_WAITING),
            machine.integers(MOST_WAITING),
        )
        self._free = machine.given(np.arange(MOST_WAITING))
        n_tags = scenario.people.users + 1 if scenario.policy.fair else 1
        self._tags = tuple(machine.floats(n_tags) for _ in _LANES)
        self._kinds = (
            machine.integers(loop.KINDS),
            machine.integers(loop.KINDS),
            machine.floats(loop.KINDS),
            machine.floats(loop.KINDS),
            machine.integers(loop.KINDS),
        )
        self._base, self._write = machine.floats(loop.KINDS), machine.floats(loop.KINDS)
        of_kinds = [self._lanes[(kind % loop.LOWERED) // 4] for kind in range(loop.KINDS)]
        self._lane_of = machine.given(np.array(self._lanes))
        self._lane_of_kind = machine.given(np.array(of_kinds))
        self._kinds_seen = self._kinds_now()
        self._fill_kinds()
        n, f, people = self._n, self._f, scenario.people
        n[N.FREE] = MOST_WAITING
        n[N.FAIR] = int(scenario.policy.fair)
        n[N.DROPS_DEAD] = int(scenario.policy.drops_dead)
        f[F.COUNT_FROM] = scenario.warm_s
        f[F.COUNT_UNTIL] = scenario.seconds - min(people.patience_s, scenario.seconds / 2)
        f[F.PATIENCE_S] = people.patience_s
        f[F.PROMPT_COST] = cost("units", Usage(people.prompt_tokens, people.cached_tokens, 0))
        f[F.TOKEN_COST] = cost("units", Usage(output=1))

    def _fill_kinds(self) -> None:
        people, fleet = self._scenario.people, self._scenario.fleet
        timing = {LARGE: fleet.large.timing, SMALL: fleet.small.timing}
        new = people.prompt_tokens - people.cached_tokens
        for kind, slot in enumerate(self._slots):
            one = timing[slot.model]
            self._base[kind] = one.seconds(new_tokens=new, answer_tokens=0)
            self._write[kind] = one.write_s

    def play(self) -> Outcome:
        scenario, now = self._scenario, 0.0
        sample_s = max(self._beat_s, scenario.seconds / SAMPLES)
        next_sample, before = sample_s, self._totals()
        while now < scenario.seconds - 1e-9:
            until = min(scenario.seconds, now + self._beat_s)
            self._beat(now, until)
            if until >= next_sample - 1e-9:
                before = self._sample(until, until - next_sample + sample_s, before)
                next_sample += sample_s
            now = until
        return self._ended()

    def _beat(self, now: float, until: float) -> None:
        n, f, scenario = self._n, self._f, self._scenario
        n[N.SIZE] = self._size
        lowered = self._machine.integers(loop.PLANS)
        view = self._view(now)
        for place, plan in enumerate(self._plans):
            terms = Terms(self._ladder.rung, plan)
            lowered[place] = int(terms.goes_to_small)
            f[F.LIMIT_S + place] = terms.starts_within_s if scenario.policy.door else _NO_LIMIT
            f[F.CAP + place], f[F.LONGEST + place] = terms.answer_tokens, plan.answer_tokens
            before = sum(self._pace.running(one, view) for one in _LANES[:place])
            f[F.LEFT + place] = max(1.0, self._size - before)
            f[F.REPLY_S + place] = self._pace.reply_s(_LANES[place])
        for place in range(loop.KINDS):
            self._kinds[2][place] = 0.0
        self._machine.play(
            now, until, self._come(now, until), n, f, self._bins,
            self._lane_of, self._lane_of_kind, lowered, self._ends, self._lines,
            self._store, self._free, self._tags, self._kinds, self._base, self._write,
        )  # fmt: skip
        if n[N.FULL]:
            raise LineTooLong(f"more than {MOST_WAITING:,} messages wait")
        self._learn(now, until)

    def _learn(self, now: float, until: float) -> None:
        """Tells the service's policies what has happened since the last beat."""
        held_in_all = 0.0
        before, self._kinds_seen = self._kinds_seen, self._kinds_now()
        for kind, after in enumerate(self._kinds_seen):
            n_begun, n_ended = after[0] - before[kind][0], after[1] - before[kind][1]
            held_s = float(self._kinds[2][kind]) + (after[0] - after[1]) * (until - now)
            if n_begun:
                self._kind_s[kind] = (after[2] - before[kind][2]) / n_begun
            if n_begun or n_ended or held_s:
                spell = Spell(n_begun, n_ended, held_s, self._kind_s[kind])
                self._watch.counted(self._slots[kind], until, spell)
                held_in_all += held_s
        there_s = max(self._size, int(self._n[N.BUSY])) * (until - now)
        if now >= self._scenario.warm_s:
            self._busy_s += held_in_all
            self._there_s += there_s
        self._watch.refused(int(self._n[N.REFUSED_NOW]) - self._refused_before)
        self._refused_before = int(self._n[N.REFUSED_NOW])
        self._pace = self._pace.after(self._view(until))
        waiting = int(self._n[N.LINE]) + int(self._n[N.LINE + 1])
        self._outcome.most_waiting = max(self._outcome.most_waiting, waiting)
        self._used_s += held_in_all
        self._had_s += there_s
        if self._next_look - 1e-9 <= until < self._scenario.seconds:
            self._next_look = until + self._look_s
            self._look(until, waiting)

    def _look(self, now: float, waiting: int) -> None:
        """At the load: the ladder's look, and the scaler's."""
        load = self._watch.look(now, waiting=waiting, n_slots=self._size)
        busy = self._used_s / self._had_s if self._had_s else 1.0
        self._used_s = self._had_s = 0.0
        if self._ladder.look(now, load, busy):
            self._outcome.steps.append((now, self._ladder.rung, 0))
        if self._scaler and now % self._scenario.scaling.every_s < self._look_s:
            self._size = self._scaler.look(now, load, self._size)

    def _kinds_now(self) -> list[tuple[int, int, float]]:
        begun, ended, _, seconds, _ = self._kinds
        if self._machine.is_compiled:
            begun, ended, seconds = begun.tolist(), ended.tolist(), seconds.tolist()
        return list(zip(begun, ended, seconds, strict=True))

    def _come(self, now: float, until: float) -> tuple[Any, ...]:
        """Who comes in this beat, drawn at once."""
        dice, people, given = self._dice, self._scenario.people, self._machine.given
        seconds = until - now
        n = int(dice.poisson(self._rate(now + seconds / 2) * seconds))
        at = now + seconds * np.sort(dice.random(n))
        plan = (dice.random(n) < people.free_share).astype(np.int64)
        counts = (at >= self._f[F.COUNT_FROM]) & (at < self._f[F.COUNT_UNTIL])
        self._n_asked[0] += np.bincount(plan, minlength=loop.PLANS)
        self._n_asked[1] += np.bincount(plan[counts], minlength=loop.PLANS)
        easy = (dice.random(n) < people.easy_share).astype(np.int64)
        owner = dice.integers(1, people.users + 1, n)
        if people.answer_spread:
            sigma = people.answer_spread
            middle = math.log(people.answer_tokens) - sigma * sigma / 2
            answer = np.maximum(1.0, np.rint(dice.lognormal(middle, sigma, n)))
        else:
            answer = np.full(n, float(people.answer_tokens))
        return (given(at), given(plan), given(easy), given(owner), given(answer))

    def _view(self, now: float) -> LineView:
        n = self._n
        lanes = {
            lane: LaneState(int(n[N.LINE + i]), int(n[N.RUNNING + i]), self._n_begun(i))
            for i, lane in enumerate(_LANES)
        }
        return LineView(now, lanes)

    def _n_begun(self, lane: int) -> int:
        seen, lanes = self._kinds_seen, self._lane_of_kind
        return sum(begun for (begun, _, _), one in zip(seen, lanes, strict=True) if one == lane)

    # What is seen.

    def _totals(self) -> tuple[float, ...]:
        n = self._n
        asked, begun = float(self._n_asked[0].sum()), float(sum(self._kinds[0]))
        away = (float(n[N.REFUSED_NOW]), float(n[N.TIMED_OUT_NOW]))
        return (asked, begun, *away, float(self._f[F.WAITED_S]))

    def _sample(self, now: float, seconds: float, before: tuple[float, ...]) -> tuple[float, ...]:
        after = self._totals()
        asked, begun, refused, timed_out, waited = (
            b - a for a, b in zip(before, after, strict=True)
        )
        load, rung = self._watch.load, self._ladder.rung
        n = self._n
        self._outcome.samples.append(
            Sample(
                at=now,
                asked_per_s=asked / seconds,
                begun_per_s=begun / seconds,
                refused_per_s=refused / seconds,
                timed_out_per_s=timed_out / seconds,
                waiting=int(n[N.LINE]) + int(n[N.LINE + 1]),
                busy=int(n[N.BUSY]) / max(1, self._size),
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
        outcome.longest_wait_s = float(self._f[F.LONGEST_WAIT_S])
        outcome.accelerator_s = self._there_s
        scaler, fixed_s = self._scaler, self._size * self._scenario.seconds
        outcome.paid_s = scaler.paid_s if scaler else fixed_s
        outcome.busy = self._busy_s / max(1e-9, self._there_s)
        return outcome

    def _fate(self, plan: int) -> Fate:
        own = [
            (int(self._kinds[4][kind]), slot, bool(kind % 2))
            for kind, slot in enumerate(self._slots)
            if (kind % loop.LOWERED) // 4 == plan
        ]
        n_begun = sum(n for n, _, _ in own)
        return Fate(
            n=int(self._n_asked[1][plan]),
            n_refused=int(self._n[N.REFUSED + plan]),
            n_timed_out=int(self._n[N.TIMED_OUT + plan]),
            n_begun=n_begun,
            n_small=sum(n for n, slot, _ in own if slot.model == SMALL),
            n_short=sum(n for n, _, is_short in own if is_short),
            waits_s=self._waits(plan, n_begun),
        )

    def _waits(self, plan: int, n: int) -> list[float]:
        """The waits of the histogram, thinned where there are very many, in their order."""
        every = max(1, n // _MOST_WAITS)
        waits: list[float] = []
        bins = [int(found) for found in self._bins[plan]]
        bins[0] = n - sum(bins)  # those that did not wait
        n_seen = 0
        for place, found in enumerate(bins):
            before, n_seen = n_seen, n_seen + found
            # Each is put in the middle of its hundredth; who did not wait did not wait.
            wait_s = max(0.0, place - 0.5) / loop.BINS_PER_S
            waits += [wait_s] * (n_seen // every - before // every)
        return waits

    def _count_those_left(self) -> None:
        if int(self._n[N.FREE]) == MOST_WAITING:
            return
        is_free = {int(place) for place in self._free[: int(self._n[N.FREE])]}
        _, kinds, _, counted = self._store
        for place in range(MOST_WAITING):
            if place not in is_free and counted[place]:
                self._outcome.groups[_NAMES[int(kinds[place]) // 4]].n_timed_out += 1


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
