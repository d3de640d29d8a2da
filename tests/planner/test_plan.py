"""A plan as a whole: what binds, what the other timing says, what a guess is worth."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tertulia.planner.plan import Plan, Wish, plan_for, widths
from tertulia.planner.sheet import Sheet
from tertulia.planner.telling import as_document, binding, quick, swings, told
from tertulia.planner.wishes import Nonsense


def planned(preset: str | None = None, **document: Any) -> Plan:
    return plan_for([Wish(document, "test")], preset)


def resource(plan: Plan) -> str:
    return binding(plan.sheet, "large").resource


def test_without_a_word_it_is_by_measured_steps() -> None:
    plan = planned()
    assert (plan.timing_is, plan.other_is) == ("by measured steps", "by the data sheet alone")
    assert plan.value("large.a_s") == pytest.approx(3.31e-3)
    assert plan.other.value("large.a_s") == 0


def test_the_data_sheet_alone_may_be_asked_for() -> None:
    plan = planned(timing="roofline")
    assert (plan.value("large.a_s"), plan.value("large.efficiency")) == (0, 0.6)
    assert plan.other.value("large.efficiency") == pytest.approx(0.89)


def test_a_preset_may_be_planned_by_measured_steps() -> None:
    plan = planned("seed-003", timing="measured")
    assert (plan.value("replicas"), plan.other.value("replicas")) == (33, 20)


def test_the_measured_law_is_that_of_the_tables_at_the_published_batches() -> None:
    # Step times of the kernel tables that the fits were made of, and how far the fits may err.
    first, third = planned("seed-000").other, planned("seed-003").other
    assert third.value("large.step_s") == pytest.approx(22.6e-3, rel=0.048)
    assert first.value("large.step_s") == pytest.approx(26.6e-3, rel=0.05)
    assert third.value("large.decode_tokens_per_s") == pytest.approx(11_326, rel=0.05)
    assert third.value("large.prefill_tokens_per_s") == pytest.approx(28_630, rel=0.02)


def test_what_nobody_has_measured_is_called_an_estimate() -> None:
    plan = planned(large={"model": "qwen3-32b", "accelerators_per_replica": 2})
    assert "estimate" in plan.notes[0]
    assert "estimate" not in planned().notes[0]


def test_a_fit_on_another_accelerator_keeps_its_shares_of_the_data_sheet() -> None:
    there, here = planned(large={"accelerator": "h200"}), planned()
    assert "carried over" in there.notes[0]
    for name in ("large.a_s", "large.efficiency", "large.b_s"):
        assert there.value(name) == here.value(name)
    # The same arithmetic, and memory half as fast again.
    assert there.value("large.p1_s") == pytest.approx(here.value("large.p1_s"))
    assert there.value("large.step_s") < here.value("large.step_s") * 1.2
    assert there.value("large.read_s_weights") == pytest.approx(
        here.value("large.read_s_weights") * 3.35 / 4.8
    )


def test_hardware_of_ones_own_keeps_the_shares_as_well() -> None:
    plan = planned(large={"flops": 2 * 989.4e12})
    assert "carried over" in plan.notes[0]
    assert plan.value("large.p1_s") == pytest.approx(planned().value("large.p1_s") / 2)
    assert "fitted" in planned(large={"price_per_hour": 9}).notes[0]


def test_a_calibration_is_named_as_what_the_steps_are_from() -> None:
    fit = {"a_s": 1e-3, "efficiency": 0.7, "b_s": 0, "p0_s": 0, "p1_s": 1e-4, "p2_s": 0}
    assert planned(large=fit).notes[0] == "large: given by test"


def test_an_estimate_comes_near_what_was_measured() -> None:
    # The estimate for a shape that is measured, as for another one of the same size.
    measured = planned(large={"model": "llama-3.1-70b"})
    estimated = planned(large={"model": "qwen2.5-72b"})
    for name in ("large.step_s", "large.accelerator_s"):
        assert estimated.value(name) == pytest.approx(measured.value(name), rel=0.2)


@pytest.mark.parametrize(
    ("precision", "width", "busy"),
    [("fp8", 8, 160), ("fp8", 4, 128), ("fp8", 2, 104), ("bf16", 4, 172), ("bf16", 8, 184)],
)
def test_widths_come_near_a_search_over_measured_kernels(
    precision: str, width: int, busy: float
) -> None:
    # AIConfigurator 0.12 at the third design's load: accelerators busy at the peak.
    large = {"precision": precision, "accelerators_per_replica": width}
    plan = planned(open_conversations=20_000, turn_gap_s=60, cached_share=0.8, large=large)
    found = plan.value("busy_accelerators")
    assert found == pytest.approx(busy, rel=0.17)


def test_widths_are_compared_and_those_that_can_not_be_say_why() -> None:
    found = widths([Wish({"users": 1e6}, "test")])
    assert isinstance(found[1], Nonsense)
    assert [width for width, plan in found.items() if isinstance(plan, Plan)] == [2, 4, 8]


def test_a_measured_figure_takes_the_place_of_a_formula() -> None:
    plan = planned(large={"step_s": 0.02})
    assert plan.value("large.stream_tokens_per_s") == 50
    assert told(plan.sheet, "large.step_s").by == "test"


def test_usually_writing_binds_and_with_it_the_memorys_speed() -> None:
    assert resource(planned(users=1e6)) == "bandwidth"


def test_without_a_cache_computing_binds() -> None:
    assert resource(planned(users=1e6, hit_share=0)) == "compute"


def test_a_small_model_in_few_bits_binds_on_fixed_costs() -> None:
    large = {"model": "llama-3.1-8b", "precision": "fp8", "accelerators_per_replica": 8}
    assert resource(planned(users=1e7, history_tokens=0, large=large)) == "overhead"


def test_few_slots_bind_where_streams_are_slow() -> None:
    large = {"slots": 8, "decode_tokens_per_s": 1e6, "stream_tokens_per_s": 5}
    assert resource(planned(users=1e6, large=large)) == "slots"


def test_little_memory_binds_where_streams_are_slow() -> None:
    large = {"decode_tokens_per_s": 1e6, "stream_tokens_per_s": 5, "memory_bytes": 48e9}
    assert resource(planned(users=1e6, large=large)) == "kv"


def test_it_says_what_bounds_the_batch() -> None:
    assert "KV cache" in binding(planned().sheet, "large").batch_says
    assert "target between tokens" in binding(planned(gap_target_s=0.035).sheet, "large").batch_says
    assert (
        "batch is 8 by the engine's slots"
        in binding(planned(large={"slots": 8}).sheet, "large").batch_says
    )
    assert "was given" in binding(planned("seed-003").sheet, "large").batch_says


def test_more_people_never_take_fewer_accelerators() -> None:
    sizes = [planned(users=10**n).value("accelerators") for n in range(1, 9)]
    assert sizes == sorted(sizes)


def test_the_spare_replica_is_there_for_the_smallest_fleet() -> None:
    assert planned(users=1).value("replicas") == 2
    assert planned(users=1, spare_replicas=0).value("replicas") == 1


def test_a_pool_that_nobody_asks_for_has_no_replicas() -> None:
    plan = planned(small_share=0)
    assert (plan.value("small.replicas"), plan.value("small.accelerators")) == (0, 0)
    assert planned(small_share=1).value("large.replicas") == 0


def test_the_ladders_first_rung_removes_what_was_reckoned() -> None:
    plan = planned("seed-000", small_share=0.7)
    assert plan.value("ladder_to_small_removes") == pytest.approx(0.275, abs=0.002)


def test_scaling_with_the_day_costs_a_third_and_what_loading_takes() -> None:
    plan = planned("seed-002", load_s=600)
    assert plan.value("scaled_share") == pytest.approx(0.340, abs=0.001)
    assert planned("seed-002", load_s=1_800).value("scaled_share") == pytest.approx(
        0.354, abs=0.001
    )
    assert plan.value("scaled_cost_per_day") == pytest.approx(980, rel=0.005)


def test_the_smallest_fleet_alone_moves_the_crossover() -> None:
    plan = planned("seed-000", team_per_year=0, spare_replicas=1)
    assert plan.value("crossover_users") == pytest.approx(7_243, rel=0.001)


def test_a_fleet_that_never_pays_says_so() -> None:
    plan = planned(large={"price_per_hour": 90}, users=1e7)
    assert told(plan.sheet, "crossover_users").value is None


def test_a_guess_is_worth_what_the_fleet_changes_by() -> None:
    found = {one.name: one for one in swings(planned(users=1e6), "accelerators")}
    assert found["users"].less < 240 < found["users"].more
    assert found["hit_share"].more < found["hit_share"].less
    assert "large.price_per_hour" not in found  # it changes no number of accelerators


@pytest.mark.parametrize("preset", [None, "seed-000", "seed-002", "seed-003"])
def test_the_document_is_json_with_every_figure(preset: str | None) -> None:
    document = as_document(planned(preset, hit_conversations=100))  # few, as they take long
    figures = json.loads(json.dumps(document, allow_nan=False))["figures"]
    assert set(figures) == set(quick())
    assert figures["large.step_s"]["formula"].startswith("a_s + step_bytes")
    assert figures["users"]["by"] == (
        "default" if preset in (None, "seed-003") else f"preset {preset}"
    )
    assert figures["large.step_s"]["beside"] != figures["large.step_s"]["value"]


def test_a_plan_computes_each_figure_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # A page asks for a plan whenever somebody moves a slider; `python -m bench plan` has the time.
    computed: list[str] = []
    once = Sheet._computed

    def counted(sheet: Sheet, name: str) -> float:
        computed.append(name)
        return once(sheet, name)

    monkeypatch.setattr(Sheet, "_computed", counted)
    sheet = planned().sheet.changed({})
    computed.clear()
    for name in (*quick(), *quick()):
        told(sheet, name)
    assert len(computed) == len(set(computed)) > 100
