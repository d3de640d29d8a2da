"""The ladder: one rung a step, none sooner than ten seconds after the last, none within the gap."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tertulia.core.choice import AUTO
from tertulia.core.ladder import (
    ALONE_S,
    CALM_S,
    CALM_TIMES,
    GAP,
    RUNGS,
    SHORT_NOTICE,
    SHORT_TOKENS,
    START_S,
    STEP_S,
    TOP,
    UP,
    WIDEST_GAP,
    Calm,
    Foothold,
    Terms,
    gap_of,
    may_step,
    wanted_rung,
)
from tertulia.core.load import Load
from tertulia.core.plans import Plan
from tertulia.core.types import Lane

FREE = Plan(name="free", window_tokens=8_000, answer_tokens=1_000, wait_s=10.0, ladder=True)
PLUS = replace(FREE, name="plus", lane=Lane.PLUS, answer_tokens=2_000, ladder=False)
MANY = 2_000.0  # replies begun a second: the gap is the narrowest
# What the rungs remove of the load: free to small 27.5 %, free is short 10.2 % more.
LEFT = (1.0, 0.7253, 0.6512)

loads = st.floats(0.0, 3.0)
vectors = st.tuples(loads, loads, loads)


def load(on_rung: tuple[float, float, float], per_s: float = MANY, *, whole: bool = True) -> Load:
    return Load(on_rung, per_s, whole)


def offered(share: float, noise: float = 0.0) -> Load:
    """The load when so much is asked for, with the usual mix of messages."""
    first, second, third = (share * left * (1.0 + noise) for left in LEFT)
    return load((first, second, third))


@pytest.mark.parametrize("rung", range(TOP + 1))
def test_the_rungs_do_what_their_names_say(rung: int) -> None:
    free = Terms(rung, FREE)
    name = RUNGS[rung]
    assert free.goes_to_small == (name != "paid_first")
    assert free.may_be_canned == (name == "free_is_refused")
    assert not Terms(rung, PLUS).may_be_canned
    is_short = name in ("free_is_short", "free_is_refused")
    assert free.answer_tokens == (SHORT_TOKENS if is_short else 1_000)
    assert free.abandon_s == (ALONE_S if is_short else 30.0)
    assert free.starts_within_s == (START_S if name == "free_is_refused" else 10.0)


@pytest.mark.parametrize("rung", range(TOP + 1))
def test_a_plan_that_the_ladder_spares_keeps_all(rung: int) -> None:
    """I13: no paid turn is refused or downgraded."""
    terms = Terms(rung, PLUS)
    assert (terms.goes_to_small, terms.answer_tokens, terms.abandon_s) == (False, 2_000, 30.0)
    assert terms.starts_within_s == PLUS.wait_s
    assert terms.shortened(5_000) == (2_000, ())


def test_nothing_that_a_plan_has_less_of_grows() -> None:
    poor = replace(FREE, answer_tokens=200, wait_s=1.0, abandon_s=2.0)
    terms = Terms(TOP, poor)
    assert (terms.answer_tokens, terms.starts_within_s, terms.abandon_s) == (200, 1.0, 2.0)
    assert terms.shortened(150) == (150, ())


def test_a_reply_that_would_go_on_for_ever_ends_as_well() -> None:
    assert Terms(2, replace(FREE, abandon_s=None)).abandon_s == ALONE_S
    assert Terms(1, replace(FREE, abandon_s=None)).abandon_s is None


def test_a_turn_keeps_what_it_was_admitted_with() -> None:
    """The rung may change while it runs."""
    assert Terms(2, FREE).limits == replace(FREE.limits, abandon_s=ALONE_S)
    assert Terms(TOP, PLUS).limits == PLUS.limits


def test_a_reader_is_told_of_an_answer_that_the_ladder_shortened() -> None:
    assert Terms(1, FREE).shortened(5_000) == (1_000, ())
    assert Terms(2, FREE).shortened(5_000) == (SHORT_TOKENS, (SHORT_NOTICE,))
    assert Terms(2, FREE).shortened(SHORT_TOKENS) == (SHORT_TOKENS, ())


def wanted(rung: int, now: Load | None) -> int:
    """The rung to be on once the load has been so for a long time."""
    return wanted_rung(rung, now, Calm().after(now, 1_000.0))


@given(st.integers(0, TOP), vectors, st.floats(0.0, 1e6), st.booleans())
def test_a_step_is_to_the_next_rung_at_most(
    rung: int, on_rung: tuple[float, float, float], per_s: float, whole: bool
) -> None:
    to = wanted(rung, load(on_rung, per_s, whole=whole))
    assert abs(to - rung) <= 1
    assert 0 <= to <= TOP


@given(st.integers(0, TOP), vectors)
def test_within_the_gap_nothing_moves(rung: int, on_rung: tuple[float, float, float]) -> None:
    """I13: no flip inside the gap: what was just taken is not left, and what was left not taken."""
    to = wanted(rung, load(on_rung))
    assume(to != rung)
    assert wanted(to, load(on_rung)) != rung
    line, at = UP[min(rung, to)], on_rung[min(rung, to)]
    assert at >= line if to > rung else at < line - GAP


def test_a_rung_that_helps_is_not_left_because_it_helped() -> None:
    """By the load that is left, 1.0 becomes 0.73 on the first rung, below its line less the gap."""
    assert wanted(0, offered(1.0)) == 1
    assert wanted(1, offered(1.0)) == 1
    assert wanted(1, offered(0.77)) == 0


def test_an_unknown_load_changes_nothing_and_an_open_one_lets_nothing_be_left() -> None:
    for rung in range(TOP + 1):
        assert wanted(rung, None) == rung
        assert wanted(rung, load((0.0, 0.0, 0.0), whole=False)) == rung
        assert wanted_rung(rung, None, Calm((900.0, 900.0, 900.0))) == rung
    assert wanted(1, load((2.0, 2.0, 2.0), whole=False)) == 2


def test_a_rung_is_taken_at_once_and_left_only_after_a_calm() -> None:
    idle, calm = offered(0.1), Calm()
    assert wanted_rung(0, offered(1.0), calm.after(offered(1.0), 2.0)) == 1
    for _ in range(int(CALM_S / 2) - 1):
        calm = calm.after(idle, 2.0)
        assert wanted_rung(1, idle, calm) == 1
    assert wanted_rung(1, idle, calm.after(idle, 2.0)) == 0
    for end in (offered(0.8), None, load((0.1, 0.1, 0.1), whole=False)):
        begun_again = calm.after(end, 2.0).after(idle, 2.0)
        assert begun_again.low_s[0] == 2.0


def test_the_rungs_are_calm_each_for_itself() -> None:
    calm = Calm().after(load((0.9, 0.9, 0.5)), 2.0).after(load((0.5, 0.9, 0.5)), 2.0)
    assert calm.low_s == (2.0, 0.0, 4.0)


def test_where_figures_are_averaged_longer_the_calm_is_longer() -> None:
    """One of so many averages that hardly ever hang together by chance."""
    quiet = load((0.0, 0.0, 0.0), per_s=1.0)
    needed_s = CALM_TIMES * quiet.averaged_s
    assert needed_s > CALM_S
    assert wanted_rung(1, quiet, Calm((needed_s - 1.0, 0.0, 0.0))) == 1
    assert wanted_rung(1, quiet, Calm((needed_s, 0.0, 0.0))) == 0


@given(
    st.floats(0.8, 1.6),
    st.lists(st.floats(-0.06, 0.06), min_size=360, max_size=360),
)
def test_at_a_constant_load_three_changes_an_hour_are_the_most(
    share: float, noise: list[float]
) -> None:
    """From the foot. One that looks at the load that is left makes up to 360 of them, and one that
    leaves a rung as soon as chance makes the load low, four near each line."""
    rungs, calm = [0], Calm()
    for one in noise:
        calm = calm.after(offered(share, one), 10.0)
        rungs.append(wanted_rung(rungs[-1], offered(share, one), calm))
    assert sum(before != after for before, after in pairwise(rungs)) <= 3


def test_who_picked_a_model_is_moved_only_where_the_ladder_may_act() -> None:
    assert Terms(0, FREE).may_overflow(AUTO)
    assert Terms(0, FREE).may_overflow("large")
    assert Terms(TOP, PLUS).may_overflow(AUTO)
    assert not Terms(TOP, PLUS).may_overflow("large")


@given(st.floats(0.0, 1e6))
def test_the_gap_is_wider_in_a_small_fleet(n_known: float) -> None:
    assert GAP <= gap_of(n_known + 1.0) <= gap_of(n_known) <= WIDEST_GAP


def test_the_gap_is_three_and_a_half_times_what_chance_does() -> None:
    """At 350 messages a second, a twentieth of twice the planned day, it is still the narrowest."""
    assert gap_of(7_000.0) == GAP
    assert gap_of(3_200.0) == pytest.approx(0.0875)
    assert gap_of(0.0) == WIDEST_GAP


class Stepping(RuleBasedStateMachine):
    """Several processes see a foothold, think, and step when they come to it; time passes."""

    @initialize()
    def begin(self) -> None:
        self.rung, self.changes, self.now, self.stepped_at = 0, 0, 100.0, 100.0
        self.seen = [self.foothold()] * 3
        self.times: list[float] = []

    def foothold(self) -> Foothold:
        return Foothold(self.rung, self.now - self.stepped_at, self.changes)

    @rule(seconds=st.floats(0.1, 30.0))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(who=st.integers(0, 2))
    def looks(self, who: int) -> None:
        self.seen[who] = self.foothold()

    @rule(who=st.integers(0, 2), to=st.integers(-1, TOP + 1))
    def steps(self, who: int, to: int) -> None:
        if not may_step(self.foothold(), seen=self.seen[who], to=to):
            return
        assert self.seen[who].changes == self.changes, "another stepped since it looked"
        assert abs(to - self.rung) == 1
        self.times.append(self.now)
        self.rung, self.stepped_at = to, self.now
        self.changes += 1

    @invariant()
    def stands_on_a_rung_and_never_hurries(self) -> None:
        if not hasattr(self, "times"):
            return
        assert 0 <= self.rung <= TOP
        assert all(after - before >= STEP_S - 1e-9 for before, after in pairwise(self.times))


TestStepping = Stepping.TestCase


def test_two_that_saw_the_same_take_one_step() -> None:
    seen = Foothold(1, 12.0, 5)
    assert may_step(seen, seen=seen, to=2)
    assert not may_step(Foothold(2, 0.0, 6), seen=seen, to=2)
    assert not may_step(Foothold(1, 12.0, 7), seen=seen, to=2), "there and back again"
    assert not may_step(Foothold(1, 9.9, 5), seen=seen, to=2)
