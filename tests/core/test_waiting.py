"""The line: fair between users whatever they ask, lanes in order, and waits that come true."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.pools import Pool
from tertulia.core.types import Lane, ModelState
from tertulia.core.waiting import (
    BELIEVED,
    EMPTY_LANE,
    GAP_S,
    HALF_S,
    REPLY_S,
    Ahead,
    Claimable,
    LaneState,
    LineView,
    Outlook,
    Pace,
    ahead_of,
    claimable,
    is_dead,
    lowest_lane,
    outlook,
    starts_per_s,
    wait_s,
)

# Claims.


def ready(room: int, slots: int, ranked_slots: int = 0) -> ModelState:
    return ModelState(
        "small", "lab/small", "ready", room=room, slots=slots, ranked_slots=ranked_slots
    )


@given(st.integers(0, 64), st.integers(1, 64), st.integers(0, 64), st.integers(0, 300))
def test_chat_takes_any_free_slot_and_a_batch_leaves_some(
    room: int, slots: int, ranked: int, n_held: int
) -> None:
    room, ranked = min(room, slots), min(ranked, slots)
    may = claimable([ready(room, slots, ranked)], n_held=n_held, n_most=256)
    if room and n_held < 256:
        assert may is not None
        assert may.lowest is not None
        assert may.lowest >= Lane.FREE
        assert (may.lowest is Lane.BATCH) == (room > slots // 8 and (room > 1 or slots == 1))
    elif ranked and n_held < 512:
        assert may == Claimable(None, ranked)
    else:
        assert may is None


def test_a_batch_gets_on_where_there_is_one_slot_only() -> None:
    assert claimable([ready(1, 1)], n_held=0, n_most=8) == Claimable(Lane.BATCH, 0)


def test_models_that_are_not_ready_have_no_room() -> None:
    starting = ModelState("large", "lab/large", "starting", room=8, slots=8, ranked_slots=8)
    assert claimable([starting], n_held=0, n_most=8) is None
    assert claimable([], n_held=0, n_most=8) is None


LARGE = ModelState("large", "lab/large", "ready", room=0, slots=4)


def test_a_turn_that_waits_for_a_full_model_lets_others_pass() -> None:
    may = claimable([LARGE, ready(1, 4)], n_held=0, n_most=8)
    assert may == Claimable(Lane.FREE, 0, may.full if may is not None else ())
    for lane in (Lane.PLUS, Lane.FREE):
        assert may.lets_wait(lane, "large")
        assert may.lets_wait(lane, "lab/large")
        assert not may.lets_wait(lane, "small")
        assert not may.lets_wait(lane, None)


def test_it_does_not_wait_for_what_an_engine_would_put_aside_for_it() -> None:
    large = ModelState("large", "lab/large", "ready", room=0, slots=4, ranked_slots=4)
    before = {Lane.PLUS: {"lab/large": 1}, Lane.FREE: {"lab/large": 4}}
    for models in ([large], [large, ready(2, 4)]):
        may = claimable(models, n_held=5, n_most=8, before=before)
        assert may is not None
        assert not may.lets_wait(Lane.PLUS, "large")
        assert may.lets_wait(Lane.FREE, "large")


def test_a_batch_that_waits_for_a_model_leaves_some_slots_there_free() -> None:
    models = [ModelState("large", "lab/large", "ready", room=1, slots=4), ready(8, 8)]
    may = claimable(models, n_held=0, n_most=8)
    assert may is not None
    assert (may.lowest, may.lets_wait(Lane.BATCH, "large")) == (Lane.BATCH, True)
    assert not may.lets_wait(Lane.BATCH, "small")
    assert not may.lets_wait(Lane.FREE, "large")


running_turns = st.dictionaries(st.sampled_from(Lane), st.integers(0, 20))


@given(running_turns, st.integers(1, 20))
def test_without_room_a_chat_turn_still_goes_before_one_of_a_lane_behind_it(
    running: dict[Lane, int], slots: int
) -> None:
    plus, free = running.get(Lane.PLUS, 0), running.get(Lane.FREE, 0)
    lowest = lowest_lane(Claimable(None, slots), running)
    if plus + free < slots:  # there is a batch to put aside, or nothing at all
        assert lowest is Lane.FREE
    elif plus < slots:
        assert lowest is Lane.PLUS
    else:
        assert lowest is None


@given(st.sampled_from(Lane), running_turns)
def test_with_room_the_lanes_are_those_that_have_it(lane: Lane, running: dict[Lane, int]) -> None:
    assert lowest_lane(Claimable(lane, 0), running) is lane


def test_a_turn_is_dead_once_its_grace_is_over() -> None:
    assert is_dead(followed_at=10.0, now=40.0, grace_s=30.0)
    assert not is_dead(followed_at=10.1, now=40.0, grace_s=30.0)
    assert not is_dead(followed_at=0.0, now=1e9, grace_s=None)


# Waits.


def view(
    at: float,
    *,
    plus: LaneState = EMPTY_LANE,
    free: LaneState = EMPTY_LANE,
    batch: LaneState = EMPTY_LANE,
) -> LineView:
    return LineView(at, {Lane.PLUS: plus, Lane.FREE: free, Lane.BATCH: batch})


def steady(n_running: int, per_s: int, seconds: int) -> Pace:
    """What is learned of a lane in which so many run and so many begin each second."""
    pace = Pace()
    for at in range(seconds):
        pace = pace.after(view(float(at), free=LaneState(3, n_running, 100 + per_s * at)))
    return pace


@given(st.integers(1, 200), st.integers(5, 50))
def test_the_length_of_replies_is_learned_from_those_that_run_and_those_that_end(
    n_running: int, per_s: int
) -> None:
    pace = steady(n_running, per_s, 200)
    assert pace.reply_s(Lane.FREE) == pytest.approx(n_running / per_s, rel=0.12, abs=0.3)


def test_of_a_lane_of_which_little_was_seen_replies_are_taken_to_be_like_all_others() -> None:
    pace = steady(20, 10, 200)
    assert pace.reply_s(Lane.PLUS) == pytest.approx(2.0, rel=0.05)
    assert Pace().reply_s(Lane.PLUS) == REPLY_S


def test_a_turn_that_was_put_aside_holds_no_slot() -> None:
    """One begins and ends each second. Of four that run two are put aside for six paid ones, where
    an engine does that and has eight slots."""

    def learned_s(n_slots: int, ranked: float) -> float:
        pace = Pace()
        for at in range(300):
            look = view(float(at), plus=LaneState(0, 6, 3 * at), free=LaneState(0, 4, at))
            pace = pace.after(look, n_slots=n_slots, ranked=ranked)
        return pace.reply_s(Lane.FREE)

    assert learned_s(8, 1.0) == pytest.approx(2.0, rel=0.05)
    assert learned_s(10, 0.0) == pytest.approx(4.0, rel=0.05)


def test_few_slots_are_watched_for_longer_before_it_is_said_how_many_are_left() -> None:
    """Of a hundred slots one more or less is nothing, of eight it may be half of what is left."""

    def after_a_rush(n_slots: int) -> float:
        pace = Pace()
        for at in range(100):
            pace = pace.after(view(float(at), plus=LaneState(0, 6, 3 * at)), n_slots=n_slots)
        for at in range(100, 110):
            pace = pace.after(view(float(at), plus=LaneState(0, 0, 300)), n_slots=n_slots)
        return pace.running(Lane.PLUS, view(110.0))

    assert after_a_rush(100) == pytest.approx(3.0, abs=0.3)
    assert after_a_rush(8) == pytest.approx(5.3, abs=0.3)


def test_while_none_has_ended_replies_are_taken_to_last_longer_and_longer() -> None:
    lengths = [steady(8, 0, seconds).reply_s(Lane.FREE) for seconds in (2, 10, 20)]
    assert REPLY_S < lengths[0] < lengths[1] < lengths[2]


def test_what_was_seen_fades_by_half() -> None:
    busy = view(0.0, free=LaneState(0, 6, 6)), view(1.0, free=LaneState(0, 6, 9))
    pace = Pace().after(busy[0]).after(busy[1])
    assert (pace.seen[Lane.FREE].held_s, pace.seen[Lane.FREE].ended) == (6.0, 3.0)
    assert pace.running(Lane.FREE, busy[0]) == 6.0
    pace = pace.after(view(1.0001, free=LaneState(0, 0, 9)))
    run_s, ended = pace.seen[Lane.FREE].held_s, pace.seen[Lane.FREE].ended
    for second in range(int(HALF_S)):
        pace = pace.after(view(second + 2.0001, free=LaneState(0, 0, 9)))
    assert pace.seen[Lane.FREE].held_s == pytest.approx(run_s / 2)
    assert pace.seen[Lane.FREE].ended == pytest.approx(ended / 2)


def test_an_old_look_changes_nothing_and_one_after_a_long_while_tells_nothing() -> None:
    first = Pace().after(view(100.0, free=LaneState(0, 5, 10)))
    assert first.after(view(100.0, free=LaneState(0, 9, 99))) is first
    assert first.after(view(99.0, free=LaneState(0, 9, 99))) is first
    late = first.after(view(100.1 + GAP_S, free=LaneState(0, 5, 99)))
    assert (late.seen, late.last and late.last.at) == (first.seen, 100.1 + GAP_S)
    assert late.reply_s(Lane.FREE) == BELIEVED * REPLY_S / BELIEVED


def test_whoever_finds_a_free_slot_does_not_wait() -> None:
    look = view(0.0, free=LaneState(2, 5))
    assert [wait_s(look, Pace(), Lane.FREE, place=n, n_slots=8) for n in (1, 3)] == [0.0, 0.0]
    assert wait_s(look, Pace(), Lane.FREE, place=4, n_slots=8) > 0


def test_the_capacity_that_paid_turns_use_is_not_left_for_free_ones() -> None:
    """The whole pool would be a guess that is 2.5 times too short."""
    look = view(0.0, plus=LaneState(0, 60), free=LaneState(20, 40))
    whole = wait_s(look, Pace(), Lane.PLUS, place=20, n_slots=100)
    left = wait_s(look, Pace(), Lane.FREE, place=20, n_slots=100)
    assert whole == pytest.approx(20 / (100 / REPLY_S))
    assert left == pytest.approx(20 / (40 / REPLY_S))


def test_where_paid_turns_use_everything_free_ones_wait_long_but_not_for_ever() -> None:
    look = view(0.0, plus=LaneState(0, 10), free=LaneState(3, 0))
    assert starts_per_s(look, Pace(), Lane.FREE, n_slots=10) == 1 / REPLY_S
    assert wait_s(look, Pace(), Lane.FREE, place=3, n_slots=10) == 3 * REPLY_S


def test_how_many_paid_turns_run_is_taken_as_it_is_as_a_rule() -> None:
    """By chance it is one more or less at each moment, and over a wait that evens out."""
    pace = Pace()
    for at in range(200):
        pace = pace.after(view(float(at), plus=LaneState(0, 35 + 10 * (at % 2), 0)))
    assert pace.running(Lane.PLUS, view(200.0)) == pytest.approx(40, abs=0.5)
    guess = starts_per_s(view(200.0, plus=LaneState(0, 45)), pace, Lane.FREE, n_slots=100)
    assert guess == pytest.approx(60 / pace.reply_s(Lane.FREE), rel=0.01)


def test_where_slots_have_gone_what_runs_there_ends_first() -> None:
    look = view(0.0, free=LaneState(3, 10))
    assert wait_s(look, Pace(), Lane.FREE, place=1, n_slots=5) == 6 / (5 / REPLY_S)


counts = st.builds(LaneState, st.integers(0, 50), st.integers(0, 50))


@given(counts, counts, counts, st.sampled_from(Lane), st.integers(0, 60), st.integers(1, 200))
def test_who_is_further_back_waits_longer(
    plus: LaneState, free: LaneState, batch: LaneState, lane: Lane, slots: int, place: int
) -> None:
    look = view(0.0, plus=plus, free=free, batch=batch)
    waits = [wait_s(look, Pace(), lane, place=place + n, n_slots=slots) for n in range(3)]
    assert waits == sorted(waits)
    assert look.running == plus.running + free.running + batch.running
    assert look.queued_before(Lane.FREE) == plus.queued + free.queued


def test_those_of_lanes_before_who_wait_are_in_the_pace_and_not_in_the_count() -> None:
    """But one of them may be for the slot that is free."""
    look = view(0.0, plus=LaneState(5, 4), free=LaneState(3, 4))
    assert wait_s(look, Pace(), Lane.FREE, place=8, n_slots=8) == pytest.approx(3 / (4 / REPLY_S))
    room = view(0.0, plus=LaneState(5, 4), free=LaneState(3, 4))
    with_two = wait_s(room, Pace(), Lane.FREE, place=8, n_slots=10)
    assert with_two == pytest.approx(3 / (6 / REPLY_S))


# With several models.

TWO = (
    Pool("large", frozenset({"large", "lab/large"}), 4),
    Pool("small", frozenset({"small", "lab/small"}), 8),
)


def crowded(**more: int) -> LineView:
    """The large model is full and twenty wait for it; the small one is idle."""
    return LineView(
        0.0,
        {Lane.FREE: LaneState(queued=20 + more.get("anywhere", 0), running=4)},
        awaiting={(Lane.FREE, "large"): 15, (Lane.FREE, "lab/large"): 5},
        running_on={"lab/large": 4},
    )


def waits(look: LineView, lane: Lane, awaited: str | None) -> float:
    ahead = ahead_of(look, lane, {})
    return outlook(look, Pace(), lane, ahead=ahead, pools=TWO, awaited=awaited).wait_s


def test_who_waits_for_a_full_model_is_in_nobodys_way_at_another() -> None:
    look = crowded()
    assert waits(look, Lane.FREE, None) == 0.0
    assert waits(look, Lane.FREE, "small") == 0.0
    assert waits(look, Lane.PLUS, "large") == pytest.approx(1 / (4 / REPLY_S))
    assert waits(look, Lane.FREE, "large") == pytest.approx(21 / (4 / REPLY_S))
    assert waits(look, Lane.FREE, "lab/large") == waits(look, Lane.FREE, "large")
    assert waits(look, Lane.FREE, "gone") == 0.0, "any will do for it by now"


def test_those_who_go_anywhere_go_where_there_is_room_first() -> None:
    """Eight of ten find a slot at the small model, and the others wait for one there."""
    look = crowded(anywhere=10)
    assert waits(look, Lane.FREE, None) == pytest.approx(3 / (8 / REPLY_S))
    assert waits(look, Lane.FREE, "small") == pytest.approx(3 / (8 / REPLY_S))
    assert waits(look, Lane.FREE, "large") == pytest.approx(21 / (4 / REPLY_S))


def test_who_has_come_since_is_counted() -> None:
    come = {(Lane.FREE, "large"): 2, (Lane.FREE, None): 3, (Lane.BATCH, "large"): 9}
    assert ahead_of(crowded(), Lane.PLUS, come) == Ahead(0.0, {})
    found = ahead_of(crowded(), Lane.FREE, come)
    assert found == Ahead(25.0, {"large": 17.0, "lab/large": 5.0})
    assert found.part(5).awaiting == pytest.approx({"large": 3.4, "lab/large": 1.0})
    assert Ahead(0.0, {}).part(0) == Ahead(0, {})


@given(counts, counts, counts, st.sampled_from(Lane), st.integers(0, 60), st.data())
def test_with_one_model_it_makes_no_difference_what_is_awaited(
    plus: LaneState, free: LaneState, batch: LaneState, lane: Lane, slots: int, data: st.DataObject
) -> None:
    slots += 1
    lanes = {Lane.PLUS: plus, Lane.FREE: free, Lane.BATCH: batch}
    bound = {(one, "small"): data.draw(st.integers(0, lanes[one].queued)) for one in Lane}
    running = sum(state.running for state in lanes.values())
    look = LineView(
        0.0,
        lanes,
        awaiting=bound,
        running_on={"lab/small": data.draw(st.integers(0, running))},
    )
    place = data.draw(st.integers(1, look.queued_before(lane) + 1))
    ahead = ahead_of(look, lane, {}).part(place - 1)
    expected = wait_s(look, Pace(), lane, place=place, n_slots=slots)
    for name in (None, "small"):
        found = outlook(
            look,
            Pace(),
            lane,
            ahead=ahead,
            pools=[Pool("small", frozenset({"small", "lab/small"}), slots)],
            awaited=name,
        )
        assert found.wait_s == pytest.approx(expected, abs=1e-6)
        each_s = starts_per_s(look, Pace(), lane, n_slots=slots)
        assert found.starts_per_s == pytest.approx(each_s)


def at_engines_with_priorities(look: LineView, lane: Lane, *, slots: int, ranked: int) -> Outlook:
    pools = [Pool("small", frozenset({"small", "lab/small"}), slots, ranked)]
    ahead = ahead_of(look, lane, {})
    return outlook(look, Pace(), lane, ahead=ahead, pools=pools, awaited=None)


def test_who_is_put_aside_for_a_turn_is_not_in_its_way() -> None:
    """Free turns run in all slots and beyond, where paid ones have put them aside."""
    look = LineView(
        0.0,
        {Lane.PLUS: LaneState(2, 4), Lane.FREE: LaneState(9, 4)},
        running_on={"lab/small": 8},
    )
    found = at_engines_with_priorities(look, Lane.PLUS, slots=4, ranked=4)
    assert found.wait_s == pytest.approx(3 / (4 / REPLY_S))
    assert found.starts_per_s == pytest.approx(4 / REPLY_S)
    plain = at_engines_with_priorities(look, Lane.PLUS, slots=4, ranked=0)
    assert plain.wait_s == pytest.approx(7 / (4 / REPLY_S))
    room = LineView(0.0, {Lane.PLUS: LaneState(0, 3), Lane.FREE: LaneState(9, 4)})
    assert at_engines_with_priorities(room, Lane.PLUS, slots=4, ranked=4).wait_s == 0.0


def test_who_is_put_aside_goes_on_before_anybody_new_of_its_lane() -> None:
    look = LineView(0.0, {Lane.PLUS: LaneState(0, 2), Lane.FREE: LaneState(3, 4)})
    found = at_engines_with_priorities(look, Lane.FREE, slots=4, ranked=4)
    assert found == at_engines_with_priorities(look, Lane.FREE, slots=4, ranked=0)
    assert found.wait_s == pytest.approx((4 + 2) / (2 / REPLY_S))


def test_a_rush_of_paid_turns_is_taken_to_end_as_they_usually_do() -> None:
    """By chance they hold all slots; as a rule they leave half of them. One must end first."""
    pools = [Pool("small", frozenset({"small"}), 8, 8)]
    pace = Pace()
    for at in range(200):
        pace = pace.after(view(float(at), plus=LaneState(0, 4, 2 * at)), n_slots=8, ranked=1.0)
    look = view(200.0, plus=LaneState(0, 8, 404), free=LaneState(6, 0))
    waits = [
        outlook(look, pace, Lane.FREE, ahead=Ahead(n, {}), pools=pools, awaited=None).wait_s
        for n in (0, 6)
    ]
    per_s = starts_per_s(look, pace, Lane.FREE, n_slots=8, ranked=1.0)
    assert waits == [pytest.approx(1 / per_s), pytest.approx((6 + 1 - 4) / per_s, rel=0.1)]


def test_engines_without_priorities_keep_their_share_of_what_is_in_the_way() -> None:
    look = LineView(0.0, {Lane.PLUS: LaneState(0, 4), Lane.FREE: LaneState(0, 4)})
    assert sum(look.in_the_way(Lane.PLUS, 0.5).values()) == 6.0
    found = at_engines_with_priorities(look, Lane.PLUS, slots=8, ranked=4)
    assert found.wait_s == 0.0


def test_a_lane_that_nobody_was_in_is_empty() -> None:
    assert LineView(0.0, {}).lane(Lane.BATCH) == LaneState(0, 0, 0)
