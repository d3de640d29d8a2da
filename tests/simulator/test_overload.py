"""The story of an overload, with the service's own policies: small, in virtual time, and exact.

`tertulia simulate overload` tells it at a tenth of the planned size.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from tertulia.core.ladder import STEP_S, TOP
from tertulia.simulator.fast import play_fast
from tertulia.simulator.outcome import Outcome
from tertulia.simulator.scenario import parse
from tertulia.simulator.world import play

# A thirtieth of 1,500 accelerators and twice the planned messages, 7,000 a second: 151 % of what
# they can.
ACCELERATORS = 50
TWICE_PER_S = 7_000 / 30
# A hundredth: what varies by chance here varies ten times less there.
FEW = 15
FEW_CAPACITY_PER_S = 7_000 / 100 / 1.511

NOTHING = {"paid_first": False, "ladder": "off", "door": False}
PAID_FIRST = {"ladder": "off", "door": False}
TO_SMALL = {"ladder": 1, "door": False}
SHORT = {"ladder": 2, "door": False}
ALL = {"ladder": TOP}
LIVE: dict[str, Any] = {}


def scene(
    policy: dict[str, Any],
    *,
    per_s: float = TWICE_PER_S,
    seconds: float,
    warm_s: float = 0.0,
    n: int = ACCELERATORS,
    **more: Any,
) -> Outcome:
    given = {
        "seconds": seconds,
        "warm_s": warm_s,
        "fleet": {"accelerators": n},
        "traffic": {"per_s": per_s},
        "policy": policy,
    }
    (variant,) = parse("a test", 'title = "a test"', {**given, **more}).variants
    return play(variant.scenario)


@cache
def story(name: str) -> Outcome:
    """Twice the plan, once the line is as long as it becomes."""
    policies: dict[str, dict[str, Any]] = {
        "nothing": NOTHING,
        "paid first": PAID_FIRST,
        "short": SHORT,
        "all": ALL,
    }
    return scene(policies[name], seconds=110.0, warm_s=30.0)


@cache
def cold() -> Outcome:
    """Twice the plan, on a fleet that nobody asked anything before."""
    return scene(LIVE, seconds=80.0)


def test_with_everything_off_a_third_of_all_time_out_paid_or_not() -> None:
    off = story("nothing")
    assert off.all.timed_out == pytest.approx(0.338, abs=0.015)
    assert off.group("plus").timed_out == pytest.approx(off.group("free").timed_out, abs=0.015)


def test_who_serves_those_that_left_serves_nobody_in_time() -> None:
    served = scene({**NOTHING, "drops_dead": False}, seconds=110.0, warm_s=30.0)
    assert served.all.timed_out > 0.99


def test_paid_first_saves_the_paid() -> None:
    paid_first = story("paid first")
    assert paid_first.group("plus").timed_out == 0.0
    assert paid_first.group("free").timed_out == pytest.approx(0.565, abs=0.02)
    assert paid_first.group("plus").wait_p95_s < 0.1


def test_free_to_the_small_model_leaves_a_fifth_of_them() -> None:
    # A line that grows by a tenth of what is asked takes long to become as long as people wait.
    to_small = scene(TO_SMALL, seconds=190.0, warm_s=120.0)
    assert to_small.group("plus").timed_out == 0.0
    assert to_small.group("free").timed_out == pytest.approx(0.20, abs=0.02)


def test_short_answers_bring_the_demand_under_the_capacity() -> None:
    short = story("short")
    assert short.all.timed_out == 0.0
    assert short.busy == pytest.approx(0.984, abs=0.01)


def test_with_all_rungs_nobody_times_out_and_next_to_nobody_is_refused() -> None:
    last = story("all")
    assert last.all.timed_out == 0.0
    assert last.group("free").refused <= 0.02
    assert last.group("free").wait_p95_s <= 2.3


def test_the_last_rung_refuses_what_is_beyond_the_capacity_and_no_more() -> None:
    """(load - capacity) / cost of a free message, at 2.6 times the plan."""
    crowded = scene(ALL, per_s=1.3 * TWICE_PER_S, seconds=90.0, warm_s=30.0)
    free_load = 0.6 * 1.3 * TWICE_PER_S * 0.1356
    beyond = 1.3 * 0.984 * ACCELERATORS - ACCELERATORS
    plus, free = crowded.group("plus"), crowded.group("free")
    assert plus.timed_out + plus.refused == 0.0
    assert free.refused == pytest.approx(beyond / free_load, abs=0.03)
    # Paid messages leave a fifth of so small a pool, which varies by chance while somebody waits.
    assert free.wait_p95_s <= 3.5
    assert crowded.all.timed_out <= 0.003


def test_an_estimate_by_the_whole_pool_lets_in_who_then_waits_too_long() -> None:
    """Reckoned through the whole pool, a wait of two seconds is one of five."""
    policy = {"ladder": "off", "estimate": "pool"}
    plans = {"free": {"wait_s": 2.0}}
    hopeful = scene(policy, seconds=90.0, warm_s=30.0, plans=plans)
    honest = scene({"ladder": "off"}, seconds=90.0, warm_s=30.0, plans=plans)
    assert hopeful.group("free").wait_p50_s == pytest.approx(5.0, abs=0.5)
    assert honest.group("free").wait_p50_s == pytest.approx(1.94, abs=0.4)
    assert honest.group("free").wait_p95_s <= 2.5


def test_from_a_cold_start_no_paid_message_notices_and_hardly_a_free_one_gives_up() -> None:
    plus = cold().group("plus")
    assert plus.timed_out + plus.refused <= 0.001
    assert plus.wait_p95_s <= 0.1
    assert cold().all.timed_out <= 0.003


def test_once_the_ladder_has_climbed_free_messages_start_soon() -> None:
    live = scene(LIVE, seconds=110.0, warm_s=50.0)
    assert live.all.timed_out == 0.0
    assert live.group("free").wait_p95_s <= 2.3
    assert live.group("free").refused <= 0.02


def test_the_ladder_steps_one_rung_at_a_time_and_never_hurries() -> None:
    steps = [(0.0, 0), *((at, rung) for at, rung, _ in cold().steps)]
    assert [rung for _, rung in steps] == [0, 1, 2, 3]
    assert all(after - before >= STEP_S for (before, _), (after, _) in pairwise(steps))


@pytest.mark.parametrize(("percent", "rungs"), [(75, 0), (90, 1), (100, 1), (135, 2), (165, TOP)])
def test_at_a_constant_load_the_rung_settles(percent: int, rungs: int) -> None:
    steady = scene(LIVE, per_s=FEW_CAPACITY_PER_S * percent / 100, seconds=180.0, n=FEW)
    assert [rung for _, rung, _ in steady.steps] == [1, 2, 3][:rungs]


@pytest.mark.parametrize("percent", [90, 100, 130])
def test_a_ladder_that_looks_at_the_load_that_is_left_never_settles(percent: int) -> None:
    """With its gap of seven points it takes away its own reason, again and again."""
    per_s = FEW_CAPACITY_PER_S * percent / 100
    flapping = scene({"ladder": "plain"}, per_s=per_s, seconds=180.0, n=FEW)
    assert len(flapping.steps) >= 8
    wide = scene({"ladder": "plain", "plain_gap": 0.35}, per_s=per_s, seconds=180.0, n=FEW)
    assert len(wide.steps) <= 3


def test_a_rung_that_chance_took_at_a_constant_load_is_not_left_by_chance() -> None:
    """At 140 % the load on rung 2 is 0.91, and in a pool as small as this chance makes anything
    from 0.85 to 0.97 of it within minutes."""
    per_s = FEW_CAPACITY_PER_S * 1.40
    given = {
        "seconds": 900.0,
        "engine": "fast",
        "fleet": {"accelerators": FEW},
        "traffic": {"per_s": per_s},
    }
    (variant,) = parse("a test", 'title = "a test"', given).variants
    steady = play_fast(variant.scenario, is_compiled=False)
    assert [rung for _, rung, _ in steady.steps] in ([1, 2], [1, 2, 3])


def test_ten_seconds_after_a_spike_everything_starts_as_before() -> None:
    spike = {"at_s": 30.0, "for_s": 40.0, "times": 1 / 0.42}
    traffic = {"per_s": 0.42 * 7_000 / 50, "spikes": [spike]}
    given = {"seconds": 280.0, "warm_s": 80.0, "fleet": {"accelerators": 30}, "traffic": traffic}
    (variant,) = parse("a test", 'title = "a test"', given).variants
    after = play(variant.scenario)
    assert after.all.timed_out + after.all.refused == 0.0
    assert after.group("free").wait_p95_s <= 0.1
    rungs = [rung for _, rung, _ in after.steps]
    assert rungs in ([1, 2, 1, 0], [1, 2, 3, 2, 1, 0]), "it went up, and came down"
