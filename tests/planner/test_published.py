"""Each figure of three published designs follows from its inputs, by the functions of a plan.

`published_figures.json` has them: what the designs print, and what comes out when their arithmetic
is done again with the inputs that they leave out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from tertulia.planner.plan import Plan, plan_for
from tertulia.planner.preset import Line
from tertulia.planner.presets import PRESETS
from tertulia.planner.sheet import Given
from tertulia.planner.telling import told

FILE = Path(__file__).parent / "published_figures.json"
ENTRIES: list[dict[str, Any]] = json.loads(FILE.read_text())["entries"]
EXACT = 5e-6  # the file's values have six digits
SEEDS = range(1, 6)  # of which the file has the mean, where turns stray

PLANS = {name: plan_for([], name) for name in PRESETS}


def cases() -> Iterator[Any]:
    for entry in ENTRIES:
        value = entry["value"]
        parts = value if isinstance(value, dict) else {None: value}
        for part, wanted in parts.items():
            name = entry["id"] if part is None else f"{entry['id']} {part}"
            yield pytest.param(f"seed-{entry['seed']}", name, wanted, entry, id=name)


def line_of(plan: Plan, name: str) -> Line:
    assert plan.preset is not None
    return next(line for line in plan.preset.lines if line.name == name)


def test_the_file_has_all_of_them() -> None:
    assert len(ENTRIES) == 135


@pytest.mark.parametrize(("preset", "name", "wanted", "entry"), list(cases()))
def test_it_follows_from_the_inputs(
    preset: str, name: str, wanted: float, entry: dict[str, Any]
) -> None:
    plan = PLANS[preset]
    line = line_of(plan, name)
    value = mean_of(plan, line) if line.figure == "hits_lost" else line.value(plan.sheet)
    within = max(entry["tol_rel"], EXACT)
    assert value == pytest.approx(wanted, rel=within)
    assert line.printed == entry["printed"]
    if line.printed is not None:
        assert value == pytest.approx(line.printed, rel=within)


def mean_of(plan: Plan, line: Line) -> float:
    """Over the seeds; one throw of the dice may be off by as much as the figure's tolerance."""
    return fmean(line.value(plan.sheet.changed({"seed": Given(seed, "test")})) for seed in SEEDS)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_inputs_of_each_line_are_visible(preset: str) -> None:
    plan = PLANS[preset]
    assert plan.preset is not None
    for line in plan.preset.lines:
        one = told(line.sheet(plan.sheet), line.figure)
        assert one.formula is not None, line.name
        assert one.uses, line.name
        assert all(told(plan.sheet, name).says for name in one.uses)


@pytest.mark.parametrize("preset", PRESETS)
def test_no_line_is_there_twice(preset: str) -> None:
    chosen = PRESETS[preset].lines
    assert len({line.name for line in chosen}) == len(chosen)


def test_measured_steps_make_the_nodes_of_the_third_design_33_and_not_20() -> None:
    plan = PLANS["seed-003"]
    assert (plan.value("replicas"), plan.other.value("replicas")) == (20, 33)


def test_measured_steps_leave_the_first_design_on_the_safe_side() -> None:
    plan = PLANS["seed-000"]
    assert (plan.value("accelerators"), plan.other.value("accelerators")) == (3_024, 2_424)
