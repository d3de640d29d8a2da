"""What an operator may ask for, and one clear sentence for each thing that makes no sense."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.planner.plan import Plan, Wish, plan_for
from tertulia.planner.sheet import CantCompute
from tertulia.planner.wishes import Nonsense

HIGHEST_WORDS = 60  # a sentence, and not a page


def planned(preset: str | None = None, **document: Any) -> Plan:
    return plan_for([Wish(document, "test")], preset)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"users": 0}, "`users` is 0, but has to be between 1 and"),
        ({"users": -5}, "`users` is -5"),
        ({"users": float("nan")}, "`users` is nan"),
        ({"users": float("inf")}, "`users` is inf"),
        ({"users": "many"}, "`users` is 'many', which is no number."),
        ({"users": True}, "`users` is True, which is no number."),
        ({"userz": 10}, "There is no `userz`; did you mean `users`?"),
        ({"zzzzzz": 10}, "There is no `zzzzzz`; `tertulia plan --names` lists all."),
        ({"hit_share": 2}, "`hit_share` is 2, but has to be between 0 and 1"),
        ({"cached_share": 1.5}, "`cached_share` is 1.5, but has to be between 0 and 1"),
        ({"hit_share": "guessed"}, "`hit_share` is 'guessed', which is no number."),
        ({"large": {"price_per_hour": -1}}, "`large.price_per_hour` is -1"),
        ({"api_answer": -0.1}, "`api_answer` is -0.1"),
        ({"large": {"accelerator": "h900"}}, "`large.accelerator` is 'h900', but there are a100"),
        ({"large": {"model": 70}}, "`large.model` is 70, but there are llama-3.1-70b"),
        ({"large": {"precision": "fp2"}}, "`large.precision` is 'fp2', but there are bf16, fp8"),
        ({"timing": "guessed"}, "`timing` is 'guessed', but there are measured, roofline."),
        ({"large": {"step_s": -1}}, "`large.step_s` is -1"),
        ({"large": 4}, "`large` is a table: write [large]"),
        ({"medium": {"params": 1e9}}, "There is no `medium`"),
        ({"large": {"measured_batch": [4]}}, "`large.measured_batch` is two numbers"),
        ({"large": {"measured_batch": [4, 2]}}, "`large.measured_batch` is two numbers"),
        ({"large": {"measured_batch": [1, 64]}}, "batch was measured from 1 to 64, and the plan"),
        ({"large": {"accelerators_per_replica": 2.5}}, "only whole accelerators make sense"),
        ({"large": {"accelerators_per_replica": 0}}, "`large.accelerators_per_replica` is 0"),
        ({"extrapolate": 1}, "`extrapolate` is true or false."),
        ({"hourly": [1, 2]}, "`hourly` has 24 numbers"),
        ({"hourly": [0] * 24}, "`hourly` has 24 numbers"),
        ({"hourly": [-1, *[1] * 23]}, "`hourly` has 24 numbers"),
        ({"hourly": 3}, "`hourly` is a list of numbers."),
        ({"answers": [[100, 0.5], [700]]}, "`answers` are pairs of tokens and share"),
        ({"answers": []}, "`answers` are pairs of tokens and share"),
        ({"answers": [[0, 1]]}, "`answer_tokens` is 0"),
        ({"plans": {"free": 0.6, "plus": 0.6}}, "[plans] has the share of turns of each plan"),
        ({"plans": {"free": 2}}, "[plans] has the share of turns of each plan"),
        ({"plans": 1}, "[plans] has the share of turns of each plan"),
        ({"large": {"accelerators_per_replica": 1}}, "leave no room for a KV cache on 1 × 80 GB"),
        ({"gap_target_s": 0.01}, "No replica of the large model keeps 10 ms between tokens"),
        ({"history_tokens": 1e6}, "Not one conversation fits into the KV cache of a replica"),
        ({"hit_share": "simulated", "hit_conversations": 50_000, "turns_per_conversation": 9},
         "Hits are simulated for at most 400,000 turns"),
    ],
)  # fmt: skip
def test_nonsense_gets_one_sentence(document: dict[str, Any], said: str) -> None:
    with pytest.raises((Nonsense, CantCompute)) as caught:
        planned(**document)
    text = str(caught.value)
    assert said in text
    assert len(text.split()) < HIGHEST_WORDS
    assert "\n" not in text


def test_a_preset_that_is_none_is_named() -> None:
    with pytest.raises(Nonsense, match="There is no preset 'seed-001'; there are seed-000"):
        planned("seed-001")


def test_a_preset_keeps_its_own_hardware() -> None:
    with pytest.raises(Nonsense, match="A preset has its own hardware"):
        planned("seed-003", large={"accelerator": "h200"})


def test_a_preset_takes_other_inputs() -> None:
    assert planned("seed-003", turn_gap_s=20).value("replicas") == 57


def test_of_two_wishes_the_later_wins() -> None:
    wishes = [Wish({"users": 5}, "file"), Wish({"users": 7}, "flag")]
    assert plan_for(wishes).sheet.given["users"].by == "flag"
    assert plan_for(wishes).value("users") == 7


def test_a_day_by_the_hour_gives_the_peak() -> None:
    day = [0.0] * 12 + [1.0] * 11 + [3.0]
    assert planned(hourly=day).value("peak_factor") == pytest.approx(3 / (14 / 24))


def test_answers_of_several_lengths_give_their_mean() -> None:
    assert planned(answers=[[100, 1], [700, 3]]).value("answer_tokens") == 550


def test_the_mix_of_plans_says_whom_the_ladder_may_act_on() -> None:
    plan = planned(plans={"free": 0.25, "plus": 0.75})
    assert plan.value("paid_accelerators") == pytest.approx(0.75 * plan.value("busy_accelerators"))


def test_simulated_hits_take_the_place_of_a_guess() -> None:
    plan = planned(hit_share="simulated", hit_conversations=200, turns_per_conversation=4)
    assert plan.value("cached_share") == plan.value("hits_simulated")
    assert 0.4 < plan.value("cached_share") < 0.97


def test_the_tables_fill_in_a_pools_figures() -> None:
    large = {"accelerator": "h200", "precision": "fp8", "model": "qwen3-32b"}
    plan = planned(large={**large, "accelerators_per_replica": 2})
    given = plan.sheet.given
    assert given["large.memory_bytes"].value == 141e9
    assert given["large.flops"].value == 1_978.9e12
    assert given["large.layers"].value == 64
    assert given["large.weight_bytes_each"].value == 1
    assert (given["large.bandwidth"].by, given["large.params"].by) == ("h200", "qwen3-32b")


def test_an_accelerator_without_eight_bit_arithmetic_keeps_its_speed() -> None:
    plan = planned(large={"accelerator": "a100-80", "precision": "fp8"})
    assert plan.value("large.flops") == 312e12
