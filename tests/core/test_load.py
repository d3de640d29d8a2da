"""The load of a rung: demand by capacity, whatever rung holds; what is unknown is never 0."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.load import (
    AVERAGED_S,
    DONE_IN_S,
    ENOUGH,
    LONGEST_S,
    MOST_LOAD,
    SHORT_SHARE,
    SMALL_SHARE,
    Demand,
    Load,
    Sight,
    Slot,
    Spell,
    Tally,
    is_sound,
    load_of,
)

LARGE, SMALL = "large-70b", "small-8b"
SETTLED_S = 40 * AVERAGED_S

PAID = Slot(LARGE, LARGE, is_eased=False)
HARD = Slot(LARGE, LARGE, is_eased=True)
MOVED = Slot(SMALL, LARGE, is_eased=True)
SHORT = Slot(SMALL, LARGE, is_eased=True, is_short=True)
EASY = Slot(SMALL, SMALL, is_eased=True)


def told(*slots: Slot, small: str | None = SMALL, waiting: int | None = 0) -> Sight:
    """What is seen of so many replies that run for ever."""
    tally = Tally(0.0)
    for slot in slots:
        tally.began(slot, 0.0)
    tally.told(SETTLED_S, small=small, waiting=waiting)
    return tally.told(2 * SETTLED_S, small=small, waiting=waiting)


def slots_of(sight: Sight, model: str) -> Any:
    (found,) = [one.slots for one in sight.demand if one.model == model]
    return pytest.approx(found)


def load(*sights: Sight, slots: dict[str, int] | None = None) -> Load:
    found = load_of(sights, {LARGE: 10, SMALL: 10} if slots is None else slots)
    assert found is not None
    return found


def test_paid_replies_are_the_same_load_on_every_rung() -> None:
    sight = told(PAID, PAID)
    assert [one.model for one in sight.demand] == [LARGE]
    assert slots_of(sight, LARGE) == (2.0, 2.0, 2.0)


def test_a_free_reply_counts_where_each_rung_would_have_it() -> None:
    sight = told(HARD)
    assert slots_of(sight, LARGE) == (1.0, 0.0, 0.0)
    assert slots_of(sight, SMALL) == (0.0, SMALL_SHARE, SMALL_SHARE * SHORT_SHARE)


@pytest.mark.parametrize(("slot", "share"), [(MOVED, 1.0), (SHORT, SHORT_SHARE)])
def test_what_the_ladder_did_is_undone_in_thought(slot: Slot, share: float) -> None:
    sight = told(slot)
    assert slots_of(sight, LARGE) == (1.0 / (SMALL_SHARE * share), 0.0, 0.0)
    assert slots_of(sight, SMALL) == (0.0, 1.0 / share, SHORT_SHARE / share)


def test_without_a_small_model_nothing_is_moved() -> None:
    assert slots_of(told(HARD, small=None), LARGE) == (1.0, 1.0, SHORT_SHARE)


@given(st.lists(st.sampled_from([PAID, HARD, MOVED, SHORT, EASY]), max_size=20))
def test_the_load_is_the_same_whatever_rung_the_replies_began_on(slots: list[Slot]) -> None:
    """As many of each kind as hold slots at once when as many begin: the rungs change how long."""
    seconds = {PAID: 4.0, HARD: 4.0, MOVED: 2.0, SHORT: 1.0, EASY: 2.0}
    measured = Tally(0.0)
    for slot, length_s in seconds.items():
        for _ in range(60):
            measured.began(slot, 0.0)
            measured.ended(slot, 0.0, seconds=length_s)
    for slot in slots:
        measured.began(slot, 0.0)
    measured.told(SETTLED_S, small=SMALL, waiting=0)
    found = load(measured.told(2 * SETTLED_S, small=SMALL, waiting=0))
    on_large = slots.count(PAID) + slots.count(HARD) + 2 * slots.count(MOVED)
    on_large += 4 * slots.count(SHORT)
    assert found.on_rung[0] == pytest.approx(max(on_large, slots.count(EASY)) / 10)
    moved = slots.count(HARD) / 2 + slots.count(MOVED) + 2 * slots.count(SHORT) + slots.count(EASY)
    assert found.on_rung[1] == pytest.approx(max(slots.count(PAID), moved) / 10)
    assert found.on_rung[2] == pytest.approx(max(slots.count(PAID), moved / 2) / 10)


def test_odd_measurements_do_not_run_away() -> None:
    tally = Tally(0.0)
    for slot, seconds in ((EASY, 0.001), (PAID, 1000.0)):
        tally.began(slot, 0.0)
        tally.ended(slot, 0.0, seconds=seconds)
    tally.began(MOVED, 0.0)
    tally.told(SETTLED_S, small=SMALL, waiting=0)
    assert slots_of(tally.told(2 * SETTLED_S, small=SMALL, waiting=0), LARGE) == (20.0, 0.0, 0.0)


def test_a_reply_of_no_time_measures_nothing() -> None:
    tally = Tally(0.0)
    tally.began(EASY, 0.0)
    tally.ended(EASY, 0.0, seconds=0.0)
    tally.began(PAID, 0.0)
    tally.ended(PAID, 0.0, seconds=4.0)
    tally.began(MOVED, 0.0)
    sight = tally.told(SETTLED_S, small=SMALL, waiting=0)
    assert slots_of(sight, LARGE) == (1.0 / SMALL_SHARE, 0.0, 0.0)


def test_what_ended_is_forgotten_after_a_while() -> None:
    tally = Tally(0.0)
    tally.began(PAID, 0.0)
    assert tally.told(SETTLED_S, small=SMALL, waiting=0).demand
    tally.ended(PAID, SETTLED_S, seconds=SETTLED_S)
    after = tally.told(SETTLED_S + AVERAGED_S, small=SMALL, waiting=0)
    assert slots_of(after, LARGE) == tuple([1 / math.e] * 3)
    assert tally.told(3 * SETTLED_S, small=SMALL, waiting=0).demand == ()


def test_rates_are_of_the_last_seconds() -> None:
    tally = Tally(0.0)
    for second in range(1, int(SETTLED_S)):
        for _ in range(3):
            tally.began(PAID, second - 0.5)
            tally.ended(PAID, second - 0.4, seconds=0.1)
        tally.refused()
        sight = tally.told(float(second), small=SMALL, waiting=second % 2)
    assert sight.begun_per_s == pytest.approx(3.0)
    assert slots_of(sight, LARGE) == (0.3, 0.3, 0.3)
    assert sight.refused_per_s == pytest.approx(1.0)
    assert sight.waiting == pytest.approx(0.5, abs=0.05)
    assert tally.told(SETTLED_S - 1.0, small=SMALL, waiting=90) is sight, "no time has passed"


def test_what_waits_is_unknown_until_it_is_counted_again() -> None:
    tally = Tally(0.0)
    assert tally.told(1.0, small=SMALL, waiting=8).waiting == 8
    assert tally.told(2.0, small=SMALL, waiting=None).waiting is None
    assert tally.told(3.0, small=SMALL, waiting=4).waiting == 4


def test_the_fullest_model_is_the_load() -> None:
    found = load(told(PAID, PAID, PAID), told(EASY), slots={LARGE: 10, SMALL: 2})
    assert found.on_rung == pytest.approx((0.5, 0.5, 0.5 * SHORT_SHARE))
    assert found.is_whole


def test_separate_pools_stay_overloaded_when_the_small_one_gets_all() -> None:
    """931 accelerators with the large and 569 with the small model, 7,000 messages a second, 60 %
    free, 70 % easy: by the load that is left the ladder would step down again."""
    sight = Sight(
        (Demand(LARGE, (1407.0, 562.8, 562.8)), Demand(SMALL, (860.4, 1081.7, 913.6))),
        begun_per_s=7000.0,
        waiting=0.0,
    )
    found = load(sight, slots={LARGE: 931, SMALL: 569})
    assert found.on_rung == pytest.approx((1.51, 1.90, 1.61), abs=0.01)


def test_what_is_not_served_makes_the_load_higher_by_its_part() -> None:
    served = Sight((Demand(LARGE, (10.0, 10.0, 5.0)),), begun_per_s=4.0, waiting=0.0)
    assert load(served).on_rung == (1.0, 1.0, 0.5)
    refusing = Sight(refused_per_s=2.0)
    assert load(served, refusing).on_rung == (1.5, 1.5, 0.75)
    queueing = replace(served, waiting=2.0 * DONE_IN_S)
    assert load(queueing, queueing).on_rung == (2.5, 2.5, 1.25), "the line is the same for both"
    assert load(served, served).begun_per_s == 8.0


def test_nothing_is_as_bad_as_it_can_seem() -> None:
    stuck = Sight((Demand(LARGE, (10.0, 10.0, 10.0)),), begun_per_s=1e-9, waiting=50.0)
    assert load(stuck).on_rung == (MOST_LOAD,) * 3
    assert load(replace(stuck, begun_per_s=0.0)).on_rung == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("begun_per_s", "averaged_s", "n_replies"),
    [
        (0.0, LONGEST_S, 0.0),
        (1.0, LONGEST_S, 120.0),
        (100.0, 15.0, ENOUGH),
        (700.0, AVERAGED_S, 14_000.0),
    ],
)
def test_where_few_replies_begin_figures_are_averaged_longer(
    begun_per_s: float, averaged_s: float, n_replies: float
) -> None:
    found = Load((0.0, 0.0, 0.0), begun_per_s, is_whole=True)
    assert (found.averaged_s, found.n_replies) == (averaged_s, n_replies)


def test_a_fleet_without_a_ready_model_has_no_load() -> None:
    assert load_of([told(PAID)], {}) is None
    assert load_of([told(PAID)], {LARGE: 0}) is None


def test_a_model_of_unknown_capacity_and_an_uncounted_line_leave_the_load_open() -> None:
    assert load(told(PAID)).is_whole
    assert not load(told(PAID), slots={SMALL: 10}).is_whole
    assert not load(told(PAID, waiting=None)).is_whole
    assert load(told(PAID, waiting=None), told(EASY)).is_whole, "one of them counted"


@pytest.mark.parametrize(
    "sight",
    [
        Sight(),
        Sight((Demand(LARGE, (0.0, 1.5, 2.0)),), 3.0, 1.0, 9.0),
    ],
)
def test_sights_like_those_of_processes_are_sound(sight: Sight) -> None:
    assert is_sound(sight)


@pytest.mark.parametrize(
    "sight",
    [
        Sight(begun_per_s=-1.0),
        Sight(refused_per_s=math.inf),
        Sight(waiting=math.nan),
        Sight((Demand("", (0.0, 0.0, 0.0)),)),
        Sight((Demand("m" * 1000, (0.0, 0.0, 0.0)),)),
        Sight((Demand(LARGE, (0.0, 1e300, 0.0)),)),
        Sight(tuple(Demand(f"m{n}", (0.0, 0.0, 0.0)) for n in range(1000))),
    ],
)
def test_a_sight_that_no_process_has_is_refused(sight: Sight) -> None:
    assert not is_sound(sight)


def test_what_is_counted_together_is_what_is_told_one_by_one() -> None:
    """Three replies of one kind within a look: whoever runs very many tells them as a spell."""
    slot = Slot("large", "large", is_eased=True)
    apart, together = Tally(0.0), Tally(0.0)
    for at in (0.5, 1.0, 1.5):
        apart.began(slot, at)
    apart.ended(slot, 1.75, seconds=1.25)
    together.counted(slot, 2.0, Spell(3, 1, 1.5 + 1.0 + 0.5 - 0.25, seconds=1.25))
    for tally in (apart, together):
        tally.refused(2)
    first = apart.told(2.0, small=None, waiting=0)
    assert together.told(2.0, small=None, waiting=0) == first
    together.counted(slot, 3.0, Spell(0, 0, 2.0))
    assert together.told(3.0, small=None, waiting=0) == apart.told(3.0, small=None, waiting=0)
