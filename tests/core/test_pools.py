"""Several models before one line: who has room where, and when turns get through."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tertulia.core.choice import AUTO, Wish, choose_model
from tertulia.core.pools import (
    IDLE_SHARE,
    Opening,
    Pool,
    full_for,
    kept_free,
    pools_of,
    room_for,
    through_s,
)
from tertulia.core.types import Lane, ModelState, Reason

LARGE = ModelState("large", "large-served", "ready", room=0, slots=4, ranked_slots=4)
SMALL = ModelState("small", "small-served", "ready", room=0, slots=4)
MODELS = [LARGE, SMALL]


@pytest.mark.parametrize(
    ("lane", "before", "rooms"),
    [
        (Lane.PLUS, {}, [4, 0]),
        (Lane.PLUS, {"large-served": 3, "small-served": 2}, [1, 0]),
        (Lane.PLUS, {"large-served": 9}, [0, 0]),
        (Lane.FREE, {"large-served": 3}, [1, 0]),  # a batch runs there
        (Lane.BATCH, {}, [0, 0]),
    ],
)
def test_chat_has_the_places_of_the_lanes_behind_it(
    lane: Lane, before: dict[str, int], rooms: list[int]
) -> None:
    assert [m.room for m in room_for(lane, MODELS, before)] == rooms


def test_a_paid_hard_question_is_not_sent_away_for_free_work() -> None:
    models, free_ones = [LARGE, replace(SMALL, room=4)], {"large-served": 4}
    for lane, before, name in ((Lane.PLUS, {}, "large"), (Lane.FREE, free_ones, "small")):
        choice = choose_model(Wish(AUTO), room_for(lane, models, before))
        assert choice is not None
        assert choice.model.name == name
        assert (choice.reason is Reason.OVERFLOW) == (name == "small")


def test_what_is_not_ready_has_no_room_for_anybody_and_is_waited_for_by_nobody() -> None:
    away = [replace(LARGE, state="failed"), replace(SMALL, state="starting", room=3)]
    assert room_for(Lane.PLUS, away, {}) == away
    assert full_for(Lane.PLUS, away, {}) == ()
    assert pools_of(away) == ()


def test_a_full_model_is_waited_for_by_both_of_its_names() -> None:
    models = [replace(LARGE, ranked_slots=0), replace(SMALL, room=1)]
    assert full_for(Lane.FREE, models, {}) == ((Lane.FREE, "large"), (Lane.FREE, "large-served"))


def test_of_two_versions_the_one_with_room_is_not_full_and_neither_is_their_name() -> None:
    models = [replace(SMALL, name="large", served=f"large-{n}", room=n) for n in (0, 1)]
    assert full_for(Lane.FREE, models, {}) == ((Lane.FREE, "large-0"),)
    both = Pool("large", frozenset({"large", "large-0", "large-1"}), 8)
    assert pools_of([*models, SMALL]) == (
        both,
        Pool("small", frozenset({"small", "small-served"}), 4),
    )


def test_an_engine_that_puts_others_aside_is_not_full_for_who_goes_first() -> None:
    free_ones = {"large-served": 4}
    assert full_for(Lane.PLUS, [LARGE], {}) == ()
    assert [name for _, name in full_for(Lane.FREE, [LARGE], free_ones)] == [
        "large",
        "large-served",
    ]


@given(st.integers(0, 100), st.integers(0, 100))
def test_a_batch_leaves_some_slots_of_each_model(slots: int, room: int) -> None:
    room = min(room, slots)
    full = full_for(Lane.BATCH, [replace(SMALL, slots=slots, room=room)], {})
    assert bool(full) == (room <= kept_free(slots))
    assert kept_free(slots) <= max(1, slots // IDLE_SHARE)
    assert kept_free(slots) < max(1, slots)


# When turns get through.

rates = st.floats(0.01, 100.0)
pools = st.lists(st.builds(Opening, st.integers(-50, 50), rates), min_size=1, max_size=4)


@given(st.builds(Opening, st.integers(-50, 50), rates), st.integers(1, 100))
def test_at_one_pool_it_takes_as_long_as_its_slots_need(one: Opening, n: int) -> None:
    assert through_s([one], n) == pytest.approx(max(0.0, (n - one.spare) / one.per_s))


@given(pools, st.integers(1, 100))
def test_by_then_so_many_have_begun_and_not_before(openings: list[Opening], n: int) -> None:
    at_s = through_s(openings, n)
    assert sum(one.passed(at_s) for one in openings) >= n - 1e-6
    assume(at_s > 0.0)
    assert sum(one.passed(at_s) for one in openings) == pytest.approx(n)


@given(pools, st.builds(Opening, st.integers(-50, 50), rates), st.integers(1, 100))
def test_another_pool_makes_nobody_wait_longer(
    openings: list[Opening], more: Opening, n: int
) -> None:
    """However many wait for it alone: they stand in nobody's way at the others."""
    assert through_s([*openings, more], n) <= through_s(openings, n) + 1e-9
