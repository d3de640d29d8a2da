"""Every step of a large fleet: as reckoned by hand, and the same with and without numba."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tertulia.simulator.caching.steps import LARGE_ON_FOUR, Crowd, count_steps
from tertulia.simulator.machine import has_numba

FEW = Crowd(replicas=4, messages_per_s=18.5, seconds=40.0)


def test_a_fleet_at_its_peak_is_as_quick_as_its_formula_says() -> None:
    steps = count_steps(FEW, fast=False)
    # 4.6 messages a second and replica, 400 tokens each: about 60 decode at once.
    usual_s = LARGE_ON_FOUR.step_s(60, 60 * 3_200)
    read_s = LARGE_ON_FOUR.prefill.chunk_s(390, 2_610)
    assert steps.gap_p50_s == pytest.approx(usual_s, rel=0.15)
    assert steps.gap_p95_s == pytest.approx(usual_s + read_s, rel=0.15)
    assert steps.n_messages == pytest.approx(18.5 * 40, rel=0.15)
    assert steps.overflown == 0


def test_smaller_chunks_keep_the_gap_small_and_the_first_token_waiting() -> None:
    small = count_steps(replace(FEW, chunk_tokens=128), fast=False)
    large = count_steps(FEW, fast=False)
    assert small.gap_p95_s < large.gap_p95_s
    assert small.ttft_p95_s > large.ttft_p95_s


def test_the_less_busy_of_two_is_quicker_than_any() -> None:
    of_two, of_any = (
        count_steps(replace(FEW, of_two=chosen), fast=False) for chosen in (True, False)
    )
    assert of_two.ttft_p95_s <= of_any.ttft_p95_s


def test_no_step_reads_more_than_a_chunk_however_many_wait() -> None:
    overrun = count_steps(replace(FEW, replicas=1, messages_per_s=100.0), fast=False)
    most_s = LARGE_ON_FOUR.step_s(256, 256 * 4_000) + LARGE_ON_FOUR.prefill.chunk_s(512, 2_610)
    assert overrun.gap_p95_s < most_s


def test_a_fleet_that_is_overrun_says_how_many_found_no_place() -> None:
    overrun = replace(FEW, replicas=1, messages_per_s=300.0, seconds=20.0)
    assert count_steps(overrun, fast=False).overflown > 1_000


def test_the_same_seed_counts_the_same_steps() -> None:
    assert count_steps(FEW, fast=False) == count_steps(FEW, fast=False)
    assert count_steps(FEW, seed=2, fast=False) != count_steps(FEW, fast=False)


@pytest.mark.skipif(not has_numba(), reason="numba, of the extra `simulate`, is not installed")
def test_compiled_it_counts_the_same() -> None:
    plain, fast = (count_steps(FEW, fast=chosen) for chosen in (False, True))
    assert fast.n_messages == plain.n_messages
    assert fast.n_steps == pytest.approx(plain.n_steps, rel=0.01)
    assert fast.gap_p95_s == pytest.approx(plain.gap_p95_s, rel=0.01)
    assert fast.ttft_p95_s == pytest.approx(plain.ttft_p95_s, rel=0.01)
