"""Fits find the law that made the points, say how far they err, and refuse what can't tell."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tertulia.core.timing import PrefillTiming, StepTiming
from tertulia.planner.calibration import (
    CantFit,
    Counts,
    PromptPoint,
    Shape,
    StepPoint,
    corrected,
    fit_prefill,
    fit_steps,
)

# 70B in 16 bits on four H100, 70B in 8 bits on eight, 8B on one: per accelerator, and the laws that
# were fitted to tables of their measured kernels.
SHAPES = {
    "70B": Shape(35e9, 81_920, 3.35e12),
    "70B in 8 bits": Shape(8.825e9, 20_480, 3.35e12),
    "8B": Shape(16e9, 131_072, 3.35e12),
}
STEPS = {
    "70B": StepTiming(3.35e12, 0.89, 3.31e-3, 0.0314e-3),
    "70B in 8 bits": StepTiming(3.35e12, 0.80, 4.90e-3, 0.0310e-3),
    "8B": StepTiming(3.35e12, 0.82, 0.46e-3, 0.0042e-3),
}
PREFILLS = {
    "70B": PrefillTiming(57.51e-6, 7.143e-10, 8.81e-3),
    "70B in 8 bits": PrefillTiming(34.93e-6, 2.548e-11, 7.95e-3),
    "8B": PrefillTiming(17.83e-6, 5.657e-10, 3.66e-3),
}
GRID = [(batch, context) for batch in (1, 8, 32, 128, 256) for context in (256, 2_048, 8_192)]
LENGTHS = (128, 512, 1_024, 4_096, 16_384, 32_768)
NOISE = 0.002  # of the median of many steps


def step_points(
    name: str, noise: float = 0.0, grid: Sequence[tuple[int, int]] = GRID
) -> list[StepPoint]:
    dice, shape = random.Random(7), SHAPES[name]
    return [
        StepPoint(
            batch,
            context,
            STEPS[name].step_s(shape.bytes_of(batch, context), batch) * dice.gauss(1, noise),
        )
        for batch, context in grid
    ]


def prompt_points(name: str, noise: float = 0.0) -> list[PromptPoint]:
    dice = random.Random(11)
    return [PromptPoint(n, PREFILLS[name].pass_s(n) * dice.gauss(1, noise)) for n in LENGTHS]


@pytest.mark.parametrize("name", SHAPES)
def test_a_fit_finds_the_law_of_a_step_within_5_percent(name: str) -> None:
    fit = fit_steps(step_points(name, NOISE), SHAPES[name])
    law = STEPS[name]
    assert fit.timing.a_s == pytest.approx(law.a_s, rel=0.05)
    assert fit.timing.efficiency == pytest.approx(law.efficiency, rel=0.05)
    assert fit.worst < 4 * NOISE
    assert (fit.batches, fit.contexts) == ((1, 256), (256, 8_192))


@pytest.mark.parametrize("name", SHAPES)
def test_a_fit_without_noise_finds_all_three_exactly(name: str) -> None:
    fit, law = fit_steps(step_points(name), SHAPES[name]), STEPS[name]
    assert fit.timing.b_s == pytest.approx(law.b_s, rel=1e-6)
    assert fit.timing.a_s == pytest.approx(law.a_s, rel=1e-6)
    assert fit.worst < 1e-6


@pytest.mark.parametrize("name", PREFILLS)
def test_a_fit_finds_the_law_of_prefill_within_5_percent(name: str) -> None:
    fit, law = fit_prefill(prompt_points(name, NOISE)), PREFILLS[name]
    assert fit.timing.p0_s == pytest.approx(law.p0_s, rel=0.05)
    assert fit.timing.p1_s == pytest.approx(law.p1_s, rel=0.05)
    assert fit.worst < 4 * NOISE
    assert fit.prompts == (128, 32_768)


def test_the_relative_error_counts_and_not_the_seconds() -> None:
    # One odd measurement, of the longest prompt: by seconds it would bend the law of all others.
    points = prompt_points("70B")
    points[-1] = PromptPoint(points[-1].tokens, points[-1].seconds * 1.2)
    fit = fit_prefill(points)
    assert max(abs(one) for one in fit.residuals[:3]) < 0.05


def test_no_coefficient_falls_below_nothing() -> None:
    # Steps that grow more slowly than their bytes: a free fit has a negative b.
    shape, law = SHAPES["8B"], STEPS["8B"]
    read = [(b, c, shape.bytes_of(b, c) / law.bandwidth) for b, c in GRID]
    fit = fit_steps([StepPoint(b, c, 0.001 + s - 2e-6 * b) for b, c, s in read], shape)
    assert fit.timing.b_s == 0
    assert fit.timing.a_s >= 0
    assert fit.worst > 0


@pytest.mark.parametrize(
    ("points", "said"),
    [
        (step_points("8B")[:5], "takes 6 points, and there are 5"),
        (step_points("8B", grid=[(n, 100) for n in range(1, 9)]), "there are 8 and 1"),
        (step_points("8B", grid=[(n, m) for n in (1, 2) for m in (1, 2, 3)]), "there are 2 and 3"),
        ([StepPoint(b, c, 0.0) for b, c in GRID], "one of steps is not"),
        ([StepPoint(b, c, float("nan")) for b, c in GRID], "one of steps is not"),
    ],
)
def test_steps_that_can_not_tell_are_refused(points: list[StepPoint], said: str) -> None:
    with pytest.raises(CantFit, match=said):
        fit_steps(points, SHAPES["8B"])


def test_steps_that_ignore_their_bytes_are_refused() -> None:
    with pytest.raises(CantFit, match="does not depend on what it reads"):
        fit_steps([StepPoint(b, c, 0.01 + 0.001 * b) for b, c in GRID], SHAPES["8B"])


def test_prompts_that_can_not_tell_are_refused() -> None:
    with pytest.raises(CantFit, match="takes 4 lengths of prompts, and there are 3"):
        fit_prefill([PromptPoint(n, n) for n in (1, 2, 3, 3)])
    with pytest.raises(CantFit, match="does not grow in step with its tokens"):
        fit_prefill([PromptPoint(n, 1.0) for n in LENGTHS])


def served(slower: float, prefill_slower: float) -> Counts:
    """A minute of 32 streams of 1,000 + 400 tokens, half of each prompt cached."""
    steps, prefill = STEPS["8B"], PREFILLS["8B"]
    step_s = slower * steps.step_s(SHAPES["8B"].bytes_of(32, 1_200), 32)
    # The minute is full: steps and prompts, 400 tokens a reply.
    requests = 60 / (400 * step_s / 32 + prefill.chunk_s(500))
    gap_s = step_s / (1 - requests * prefill.chunk_s(500) / 60)
    pass_s = prefill_slower * (prefill.pass_s(500) + step_s)
    return Counts(
        gaps_s=32 * 60,
        n_gaps=32 * 60 / gap_s,
        n_requests=requests,
        prompt_tokens=1_000 * requests,
        cached_tokens=500 * requests,
        answer_tokens=400 * requests,
        prefill_s=requests * pass_s,
        n_prefills=requests,
    )


def correction(passed: Counts, chunk_tokens: float = 500) -> tuple[float, float]:
    found = corrected(
        passed,
        60,
        steps=STEPS["8B"],
        prefill=PREFILLS["8B"],
        shape=SHAPES["8B"],
        chunk_tokens=chunk_tokens,
    )
    return found.steps, found.prefill


def test_a_replica_that_is_as_fast_as_its_fit_needs_no_correction() -> None:
    assert correction(served(1, 1)) == pytest.approx((1, 1), rel=0.01)


def test_a_slower_replica_is_found_to_be_slower() -> None:
    assert correction(served(1.3, 1)) == pytest.approx((1.3, 1), rel=0.02)
    assert correction(served(1, 1.5)) == pytest.approx((1, 1.5), rel=0.02)


def test_a_correction_slows_every_coefficient() -> None:
    found = corrected(
        served(1.3, 1.5),
        60,
        steps=STEPS["8B"],
        prefill=PREFILLS["8B"],
        shape=SHAPES["8B"],
        chunk_tokens=500,
    )
    steps, prefill = found.of(STEPS["8B"], PREFILLS["8B"])
    n_bytes = SHAPES["8B"].bytes_of(32, 1_200)
    assert steps.step_s(n_bytes, 32) == pytest.approx(found.steps * STEPS["8B"].step_s(n_bytes, 32))
    assert prefill.pass_s(900) == pytest.approx(found.prefill * PREFILLS["8B"].pass_s(900))


def test_too_little_service_tells_nothing() -> None:
    with pytest.raises(CantFit, match="too few to tell"):
        correction(Counts(1, 100, 50, 1, 1, 1, 1, 1))
    with pytest.raises(CantFit, match="too few to tell"):
        correction(Counts(1, 1_000, 9, 1, 1, 1, 1, 1))


def test_a_replica_that_began_anew_tells_nothing() -> None:
    later, earlier = Counts(*[5.0] * 8), Counts(*[9.0] * 8)
    with pytest.raises(CantFit, match="started again between the two looks"):
        later.since(earlier)
    assert earlier.since(later) == Counts(*[4.0] * 8)
