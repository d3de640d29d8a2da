"""What a page with sliders is shown of a plan, and a plan as a scenario that can be played."""

from __future__ import annotations

import json

import pytest

from tertulia.planner.showing import CURVES, SLIDERS, planned, shown
from tertulia.planner.trial import Policies, scenario_of
from tertulia.planner.wishes import Nonsense
from tertulia.simulator.scenario import read


def test_everything_on_the_page_is_a_figure_of_the_same_plan() -> None:
    plan = planned({"users": 1e6, "large.accelerators_per_replica": 8}, {"large.precision": "fp8"})
    told = shown(plan)
    figures = told["figures"]
    assert figures["accelerators"]["value"] == plan.value("accelerators")
    assert figures["large.accelerators_per_replica"]["value"] == 8
    assert figures["accelerators"]["formula"] == "large.accelerators + small.accelerators"
    assert told["binds"].keys() == {"large"}
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_a_figure_without_a_value_is_none_and_no_number() -> None:
    told = shown(planned({"free_share": 1.0, "team_per_year": 0}, {}))
    assert told["figures"]["paid_alone_at"]["value"] is None


def test_a_slider_stands_where_the_plan_is_and_makes_sense_at_both_ends() -> None:
    told = {one["name"]: one for one in shown(planned({"users": 4_000}, {}))["sliders"]}
    assert told["users"]["value"] == 4_000
    for slider in SLIDERS:
        for end in (slider.low, slider.high):
            assert planned({slider.name: end}, {}).value(slider.name) == end


def test_a_curve_passes_through_the_plans_at_its_places() -> None:
    for curve, told in zip(CURVES, shown(planned({}, {}))["curves"], strict=True):
        at, *values = told["points"][4]
        there = planned({curve.over: at}, {})
        assert values == [pytest.approx(there.value(name)) for name in curve.figures]


def test_with_the_small_model_alone_it_alone_is_shown() -> None:
    told = shown(planned({"small_share": 1.0}, {}))
    assert told["binds"].keys() == {"small"}
    assert "large.batch" not in told["figures"]


def test_what_may_be_chosen_begins_with_what_is_assumed() -> None:
    choices = shown(planned({}, {}))["choices"]
    assert choices["large.model"][0] == "llama-3.1-70b"
    assert sorted(choices["small.precision"]) == ["bf16", "fp8", "int4"]


@pytest.mark.parametrize(
    ("values", "words", "told"),
    [
        ({"usurs": 3.0}, {}, "none of the planner's names"),
        ({"users": 0.0}, {}, "`users` is 0, but has to be between 1 and"),
        ({}, {"large.accelerator": "abacus"}, "`large.accelerator` is none of a100-40"),
        ({}, {"hit_share": "simulated"}, "Words are for the model"),
        ({"large.accelerators_per_replica": 1.0}, {}, "leave no room for a KV cache"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(
    values: dict[str, float], words: dict[str, str], told: str
) -> None:
    with pytest.raises(Nonsense, match=told):
        planned(values, words)


@pytest.mark.parametrize("users", [100, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("small_share", [0.0, 0.6, 1.0])
def test_a_plan_of_any_size_is_a_scenario_of_some_ten_thousand_messages(
    users: float, small_share: float
) -> None:
    plan = planned({"users": users, "small_share": small_share}, {})
    scenario = read("it", scenario_of(plan, load=2.0, policies=Policies()))
    assert scenario.fleet.accelerators <= 100
    assert scenario.traffic.per_s * scenario.seconds < 60_000
    per_accelerator = scenario.traffic.per_s / scenario.fleet.accelerators
    wanted = 2.0 * plan.value("peak_turns_per_s") / plan.value("accelerators")
    assert per_accelerator == pytest.approx(wanted)


def test_a_typical_message_of_the_scenario_costs_what_the_plan_says() -> None:
    plan = planned({}, {})
    scenario = read("it", scenario_of(plan, load=1.0, policies=Policies()))
    people = scenario.people
    seconds = scenario.fleet.large.timing.seconds(
        new_tokens=people.prompt_tokens - people.cached_tokens, answer_tokens=people.answer_tokens
    )
    assert seconds == pytest.approx(plan.value("large.accelerator_s"))


def test_a_policy_that_is_off_is_off_in_the_scenario() -> None:
    off = Policies(ladder=False, paid_first=False, door=False)
    policy = read("it", scenario_of(planned({}, {}), load=1.0, policies=off)).policy
    assert (policy.ladder, policy.paid_first, policy.door) == ("off", False, False)
