"""One huge prompt among streams, step by step; figures of the published design beside ours."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.simulator.steps import play_steps, step_s
from tertulia.simulator.steps_table import StepsTable


def table(**given: Any) -> StepsTable:
    return StepsTable.model_validate(given)


def test_a_fixed_budget_reads_it_in_73_pieces() -> None:
    hidden = play_steps(table(scheduler="budget"))
    assert hidden.n_chunks == 73
    assert hidden.first_s == pytest.approx(3.26, abs=0.04)
    assert hidden.tokens_per_s == pytest.approx(22.4, abs=0.1)
    added = play_steps(table(scheduler="budget", overlap="sum"))
    assert added.first_s == pytest.approx(4.87, abs=0.06)
    assert added.tokens_per_s == pytest.approx(15.0, abs=0.1)


def test_read_whole_it_stalls_everybody() -> None:
    whole = play_steps(table(scheduler="whole"))
    assert whole.n_chunks == 1
    assert whole.longest_gap_s == pytest.approx(2.66, abs=0.04)


@pytest.mark.parametrize("overlap", ["max", "sum"])
@pytest.mark.parametrize("target_ms", [40.0, 50.0])
def test_the_engines_own_scheduler_keeps_to_its_target(overlap: str, target_ms: float) -> None:
    own = play_steps(table(overlap=overlap, target_ms=target_ms))
    # A step beside 30 ms of decodes may be 1.4 times as long, if the target is shorter than that.
    longest_s = max(target_ms / 1_000, 1.4 * own.steps[0].took_s)
    assert own.longest_gap_s <= 1.15 * longest_s, "it learns within a few steps"
    assert own.gap_p95_s <= 1.05 * longest_s
    assert sum(step.n_read for step in own.steps) == 30_000


def test_a_step_is_what_the_published_design_says() -> None:
    """About 30 ms for 99 or 100 streams of 3,400 tokens on four accelerators."""
    assert step_s(table(), context=100 * 3_400, n_before=0, n_read=0) == pytest.approx(
        0.030, rel=0.02
    )
    alone_s = step_s(table(streams=1), context=0, n_before=0, n_read=30_000)
    assert alone_s == pytest.approx(2.6, abs=0.1)
    paired = table(attended_ns=1.6)
    assert step_s(paired, context=0, n_before=0, n_read=30_000) > alone_s
