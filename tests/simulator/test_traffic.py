"""Rates over a day, gaps between messages, and how many accelerators a day wants."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tertulia.simulator.scaling import Scaler
from tertulia.simulator.scenario import Scenario, parse
from tertulia.simulator.traffic import DAY_S, Rate, gaps, power_of, rate_of


def scenario(**changes: Any) -> Scenario:
    return parse("a test", 'title = "a test"', changes).variants[0].scenario


def mean(rate: Rate) -> float:
    return sum(rate(DAY_S * part / 1_000) for part in range(1_000)) / 1_000


@pytest.mark.parametrize("peak_factor", [2.0, 3.0, 6.0])
def test_a_day_has_its_mean_and_its_peak(peak_factor: float) -> None:
    traffic = {"kind": "day", "per_s": 10, "peak_factor": peak_factor, "peak_at_h": 20}
    rate = rate_of(scenario(seconds=10, traffic=traffic).traffic)
    assert mean(rate) == pytest.approx(10, rel=0.01)
    assert rate(20 * 3_600) == pytest.approx(10 * peak_factor)
    assert rate(8 * 3_600) == pytest.approx(0.1), "never nobody"
    assert rate(DAY_S + 60) == pytest.approx(rate(60)), "every day is alike"
    assert power_of(2.0) == pytest.approx(1.0)


def test_a_day_by_its_hours_goes_from_one_to_the_next() -> None:
    hourly = [1.0] * 12 + [3.0] * 12
    rate = rate_of(scenario(seconds=10, traffic={"per_s": 10, "hourly": hourly}).traffic)
    assert mean(rate) == pytest.approx(10, rel=0.01)
    assert rate(6 * 3_600) == pytest.approx(5)
    assert rate(18 * 3_600) == pytest.approx(15)
    assert rate(11.5 * 3_600) == pytest.approx(10)


def test_spikes_are_times_the_usual() -> None:
    spikes = [{"at_s": 10, "for_s": 5, "times": 3}]
    rate = rate_of(scenario(traffic={"per_s": 10, "spikes": spikes}).traffic)
    assert [rate(at) for at in (9.9, 10.0, 14.9, 15.0)] == [10, 30, 30, 10]


@pytest.mark.parametrize(("kind", "cv"), [("poisson", 1.0), ("bursty", 3.0)])
def test_gaps_have_the_mean_and_the_unevenness_asked_for(kind: str, cv: float) -> None:
    gap = gaps(scenario(traffic={"kind": kind, "cv": cv}).traffic, random.Random("a test"))
    found = [gap() for _ in range(40_000)]
    average = sum(found) / len(found)
    spread = (sum((one - average) ** 2 for one in found) / len(found)) ** 0.5
    assert average == pytest.approx(1.0, rel=0.06)
    assert spread / average == pytest.approx(cv, rel=0.06)


@pytest.mark.parametrize(("load_s", "share"), [(600, 0.340), (1_800, 0.354)])
def test_a_day_scaled_ahead_of_its_need_takes_a_third_of_the_peaks_hours(
    load_s: int, share: float
) -> None:
    """Peak 3 times the mean; what loads is paid for. In steps so small that they do not matter."""
    one = scenario(
        seconds=10,
        fleet={"accelerators": 10_000, "load_s": load_s},
        traffic={"kind": "day", "per_s": 10_000, "peak_factor": 3},
        scaling={"kind": "schedule", "headroom": 1.3, "every_s": 60},
        engine="fast",
    )
    scaler = Scaler(one)
    size = scaler.first
    peak = 0
    for minute in range(1, 1_441):
        size = scaler.look(60.0 * minute, size=size, busy_s=0.0, waiting=0)
        peak = max(peak, size)
    assert scaler.paid_s / (peak * DAY_S) == pytest.approx(share, abs=0.01)


def test_a_scaler_orders_ahead_and_lets_go_at_once() -> None:
    spike = {"at_s": 1_000, "for_s": 300, "times": 2}
    one = scenario(
        fleet={"accelerators": 9, "load_s": 200},
        traffic={"per_s": 20, "spikes": [spike]},
        scaling={"kind": "schedule", "every_s": 10},
    )
    scaler = Scaler(one)
    sizes = {}
    size = scaler.first
    for at in range(10, 1_400, 10):
        size = sizes[at] = scaler.look(float(at), size=size, busy_s=0.0, waiting=0)
    assert (sizes[900], sizes[1_000], sizes[1_290], sizes[1_310]) == (9, 17, 17, 9)


def measured(**changes: Any) -> Scaler:
    scaling = {"kind": "measured", "headroom": 1.25, "every_s": 10, **changes}
    return Scaler(scenario(scaling=scaling, fleet={"accelerators": 9, "load_s": 30}))


def test_where_nobody_asks_as_many_stay_as_are_kept_warm() -> None:
    assert measured(least=3).look(10.0, size=9, busy_s=0.0, waiting=0) == 3


def test_what_is_measured_is_met_by_the_rules_that_an_autoscaler_is_told() -> None:
    """8 work all the time, and 10 are there for them once they have loaded; one waits for a 25th of
    an accelerator."""
    scaler = measured(least=2)
    assert scaler.first < 9
    sizes, size = [], 9
    for n in range(1, 6):
        size = scaler.look(10.0 * n, size=size, busy_s=80.0 * n, waiting=0)
        sizes.append(size)
    assert sizes == [9, 9, 9, 10, 10]
    assert scaler.look(60.0, size=10, busy_s=480.0, waiting=26) == 10, "it loads first"
    assert scaler.look(90.0, size=10, busy_s=720.0, waiting=0) == 12


def test_machines_come_in_steps() -> None:
    scaler = measured(step=4)
    assert scaler.look(10.0, size=12, busy_s=50.0, waiting=0) == 8
