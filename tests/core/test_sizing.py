"""How many replicas are wanted: for what they owe and hold, early up and late down."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.sizing import (
    MOST_SAMPLES,
    MOST_TIMES,
    Pressure,
    Pressures,
    ScaleRules,
    Supply,
    Wanted,
    needed,
    shared_out,
    wanted,
    wanted_ahead,
)

RULES = ScaleRules(utilisation=0.5, owed_s=0.5, spare=1, load_s=600.0, most=50)
IDLE = Supply("large", replicas=4, slots=40, running=0, owed_tokens=0, prefill_per_s=10_000.0)


def at(time: float, *, running: int = 0, owed: int = 0, waiting: float = 0.0) -> Pressure:
    return Pressure(time, replace(IDLE, running=running, owed_tokens=owed), waiting)


def test_slots_that_are_taken_or_waited_for_ask_for_replicas() -> None:
    assert needed(at(0, running=20), RULES) == (4.0, "slots")
    assert needed(at(0, running=20, waiting=10), RULES) == (6.0, "slots")


def test_prompts_that_are_owed_ask_for_replicas() -> None:
    assert needed(at(0, owed=5_000), RULES) == (4.0, "reading")
    assert needed(at(0, owed=7_500), RULES) == (6.0, "reading")


def test_however_much_is_owed_it_asks_for_twice_as_many_at_most() -> None:
    assert needed(at(0, owed=10**9), RULES) == (4 * MOST_TIMES, "reading")


def test_a_speed_that_is_not_known_is_not_taken_for_nothing() -> None:
    unknown = replace(IDLE, owed_tokens=10**6, prefill_per_s=None, running=10)
    assert unknown.owed_s is None
    assert needed(Pressure(0, unknown), RULES) == (2.0, "slots")


def test_a_model_without_replicas_needs_one_when_somebody_asks() -> None:
    nobody = replace(IDLE, replicas=0, slots=0)
    assert needed(Pressure(0, nobody), RULES) == (0.0, "floor")
    assert needed(Pressure(0, nobody, waiting=1), RULES) == (1.0, "slots")


def test_one_and_the_spare_ones_are_always_there() -> None:
    assert wanted([], RULES) == Wanted(2, "floor")
    assert wanted([at(0)], RULES) == Wanted(2, "floor")
    assert wanted([at(0)], replace(RULES, spare=0)) == Wanted(1, "floor")


def test_a_spare_one_is_added_to_what_is_needed() -> None:
    assert wanted([at(0, running=20)], RULES) == Wanted(5, "slots")
    assert wanted([at(0, running=21)], RULES) == Wanted(6, "slots")


def test_the_fullest_moment_counts_as_long_as_a_replica_loads() -> None:
    history = Pressures(RULES)
    history.add(at(0, running=40))
    history.add(at(300, running=5))
    assert history.wanted() == Wanted(9, "slots")
    history.add(at(601, running=5))
    assert history.wanted() == Wanted(2, "floor")


def test_what_grows_is_met_before_it_is_there() -> None:
    # Half a slot a second: 300 more by the time a replica has loaded.
    samples = [at(10 * n, running=5 + n) for n in range(30)]
    needs = 2 * 34 / 10
    found = wanted(samples, RULES)
    assert found.because == "growth"
    assert found.replicas == 1 + round(MOST_TIMES * needs + 0.5)


def test_a_slow_trend_is_followed_as_far_as_it_leads() -> None:
    samples = [at(60 * n, running=100 + n) for n in range(10)]
    # 2 in 300 s and on average at 107; by 600 s later 117, and 10 slots do for 5.
    assert wanted(samples, RULES) == Wanted(25, "growth")


def test_few_samples_make_no_trend() -> None:
    assert wanted([at(60 * n, running=5 + 5 * n) for n in range(7)], RULES).because == "slots"


def test_what_falls_is_no_trend() -> None:
    samples = [at(60 * n, running=40 - 4 * n) for n in range(9)]
    assert wanted(samples, RULES) == Wanted(9, "slots")


def test_samples_of_one_moment_make_no_trend() -> None:
    assert wanted([at(5, running=n) for n in range(1, 10)], RULES) == Wanted(3, "slots")


def test_where_the_day_is_known_the_most_until_a_new_one_is_ready_counts() -> None:
    assert wanted_ahead(lambda now: now / 100, 1_000.0, RULES) == Wanted(17, "slots")
    assert wanted_ahead(lambda now: 20 - now / 100, 1_000.0, RULES) == Wanted(11, "slots")
    assert wanted_ahead(lambda _: 0.0, 1_000.0, RULES) == Wanted(2, "floor")
    assert wanted_ahead(lambda _: 100.0, 1_000.0, RULES) == Wanted(50, "most")


def test_there_is_a_most() -> None:
    assert wanted([at(0, running=10_000)], RULES) == Wanted(50, "most")


def test_samples_that_come_thick_are_thinned_and_the_higher_stays() -> None:
    history = Pressures(RULES)
    history.add(at(0, running=1))
    history.add(at(0.1, running=40))
    history.add(at(0.2, running=2))
    assert history.wanted() == Wanted(9, "slots")


def test_the_samples_are_bounded() -> None:
    history = Pressures(replace(RULES, load_s=1.0))
    for n in range(3 * MOST_SAMPLES):
        history.add(at(n / MOST_SAMPLES, running=1))
    assert len(history._samples) == MOST_SAMPLES


def test_who_waits_is_shared_out_as_the_running_are() -> None:
    one, other = replace(IDLE, running=3), replace(IDLE, running=1)
    assert shared_out([one, other], 8) == [6, 2]
    assert shared_out([IDLE, replace(IDLE, slots=120)], 8) == [2, 6]
    assert shared_out([replace(IDLE, slots=0)], 8) == [0]
    assert shared_out([], 8) == []


@pytest.mark.parametrize(
    "rules",
    [
        {"utilisation": 0},
        {"utilisation": 1.1},
        {"owed_s": 0},
        {"owed_s": float("inf")},
        {"load_s": -1},
        {"load_s": float("nan")},
        {"spare": -1},
        {"spare": 3, "most": 3},
    ],
)
def test_rules_that_make_no_sense_are_refused(rules: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"\.$"):
        ScaleRules(**rules)  # type: ignore[arg-type]  # numbers of either kind, as from a flag


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 10**6)), max_size=30),
    st.integers(0, 5),
)
def test_what_is_wanted_is_within_its_bounds_and_more_load_never_wants_less(
    loads: list[tuple[int, int]], spare: int
) -> None:
    rules = replace(RULES, spare=spare)
    samples = [at(20 * n, running=run, owed=owed) for n, (run, owed) in enumerate(loads)]
    found = wanted(samples, rules)
    assert 1 + spare <= found.replicas <= rules.most
    if samples:
        fuller = [*samples[:-1], at(samples[-1].at, running=500, owed=10**7)]
        assert wanted(fuller, rules).replicas >= found.replicas
