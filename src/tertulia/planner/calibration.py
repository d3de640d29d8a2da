"""Fits the laws of `core.timing` to a load test, and corrects a fit by what a replica says.

Least squares on the relative error: a step of 5 ms that is 10 % off is as wrong as one of 50 ms.
A fit says how far it erred and within what it was measured; beyond, it says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from tertulia.core.timing import PrefillTiming, StepTiming, step_bytes

# Three coefficients from fewer points would fit any noise.
FEWEST_STEPS: Final = 6
FEWEST_PROMPTS: Final = 4
FEWEST_BATCHES: Final = 3
FEWEST_CONTEXTS: Final = 2
# From fewer a live mean is chance.
FEWEST_GAPS: Final = 200
FEWEST_REQUESTS: Final = 10
# Columns so alike can't be told apart.
_ALIKE: Final = 1e-9
_COEFFICIENTS: Final = 3

Row = tuple[float, float, float]
Range = tuple[float, float]


class CantFit(ValueError):
    """What was measured does not tell the coefficients. The text is one sentence."""


@dataclass(frozen=True, slots=True)
class StepPoint:
    """A measured step: so many sequences of so many tokens on average took so long."""

    batch: float
    context_tokens: float
    step_s: float


@dataclass(frozen=True, slots=True)
class PromptPoint:
    """A measured pass over a prompt of which nothing was cached."""

    tokens: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Shape:
    """What one accelerator of a replica reads, and how fast it could at most."""

    weights_bytes: float
    kv_bytes_per_token: float
    bandwidth: float

    def bytes_of(self, batch: float, context_tokens: float) -> float:
        """Read in one step."""
        return step_bytes(
            weight_bytes=self.weights_bytes,
            kv_bytes_per_token=self.kv_bytes_per_token,
            context_tokens=batch * context_tokens,
        )


@dataclass(frozen=True, slots=True)
class StepFit:
    """`residuals` are relative, in the order of the points: 0.02 is 2 % too slow."""

    timing: StepTiming
    residuals: tuple[float, ...]
    batches: Range
    contexts: Range

    @property
    def worst(self) -> float:
        """The largest relative error."""
        return max(map(abs, self.residuals))


@dataclass(frozen=True, slots=True)
class PrefillFit:
    """As `StepFit`, for prompts."""

    timing: PrefillTiming
    residuals: tuple[float, ...]
    prompts: Range

    @property
    def worst(self) -> float:
        """The largest relative error."""
        return max(map(abs, self.residuals))


def fit_steps(points: Sequence[StepPoint], shape: Shape) -> StepFit:
    """a, e and b; `CantFit` if the points can't tell them apart."""
    batches = {point.batch for point in points}
    contexts = {point.context_tokens for point in points}
    if len(points) < FEWEST_STEPS:
        raise CantFit(f"A fit of steps takes {FEWEST_STEPS} points, and there are {len(points)}.")
    if len(batches) < FEWEST_BATCHES or len(contexts) < FEWEST_CONTEXTS:
        raise CantFit(
            f"A fit of steps takes {FEWEST_BATCHES} batches and {FEWEST_CONTEXTS} lengths of"
            f" context, and there are {len(batches)} and {len(contexts)}: what a sequence costs"
            " can't be told from the bytes it reads."
        )
    rows = [(1.0, shape.bytes_of(one.batch, one.context_tokens), one.batch) for one in points]
    a_s, s_per_byte, b_s = _fitted(rows, [one.step_s for one in points], "steps")
    if not s_per_byte > 0:
        raise CantFit("By these points a step does not depend on what it reads: no fit of steps.")
    timing = StepTiming(shape.bandwidth, 1 / (s_per_byte * shape.bandwidth), a_s, b_s)
    predicted = [a_s + s_per_byte * row[1] + b_s * row[2] for row in rows]
    residuals = _relative(predicted, [one.step_s for one in points])
    return StepFit(timing, residuals, _range(batches), _range(contexts))


def fit_prefill(points: Sequence[PromptPoint]) -> PrefillFit:
    """p0, p1 and p2; `CantFit` if the points can't tell them apart."""
    lengths = {point.tokens for point in points}
    if len(lengths) < FEWEST_PROMPTS:
        raise CantFit(
            f"A fit of prefill takes {FEWEST_PROMPTS} lengths of prompts, and there are"
            f" {len(lengths)}."
        )
    rows = [(1.0, one.tokens, one.tokens**2) for one in points]
    p0_s, p1_s, p2_s = _fitted(rows, [one.seconds for one in points], "prefill")
    if not p1_s > 0:
        raise CantFit(
            "By these points a prompt's time does not grow in step with its tokens: measure on a"
            " machine that does nothing else."
        )
    timing = PrefillTiming(p1_s, p2_s, p0_s)
    predicted = [timing.pass_s(one.tokens) for one in points]
    residuals = _relative(predicted, [one.seconds for one in points])
    return PrefillFit(timing, residuals, _range(lengths))


@dataclass(frozen=True, slots=True)
class Counts:
    """A replica's own counters: sums since its start. Differences of two looks are what counts."""

    gaps_s: float
    n_gaps: float
    n_requests: float
    prompt_tokens: float
    cached_tokens: float
    answer_tokens: float
    prefill_s: float
    n_prefills: float

    def since(self, before: Counts) -> Counts:
        """What happened between the two looks; `CantFit` if the replica was started anew."""
        names = self.__slots__
        passed = {name: getattr(self, name) - getattr(before, name) for name in names}
        if any(value < 0 for value in passed.values()):
            raise CantFit("The replica was started again between the two looks: look again.")
        return Counts(**passed)


@dataclass(frozen=True, slots=True)
class Correction:
    """How many times as slow a replica is as its fit says, where and with what it was seen."""

    steps: float
    prefill: float
    batch: float
    context_tokens: float

    def of(self, steps: StepTiming, prefill: PrefillTiming) -> tuple[StepTiming, PrefillTiming]:
        """The fit, as slow as the replica is."""
        slower = replace(
            steps,
            a_s=steps.a_s * self.steps,
            b_s=steps.b_s * self.steps,
            efficiency=steps.efficiency / self.steps,
        )
        p = self.prefill
        return slower, PrefillTiming(prefill.p1_s * p, prefill.p2_s * p, prefill.p0_s * p)


def corrected(
    passed: Counts,
    seconds: float,
    *,
    steps: StepTiming,
    prefill: PrefillTiming,
    shape: Shape,
    chunk_tokens: float,
) -> Correction:
    """What `passed` in so many seconds of ordinary service says of a fit.

    By Little's law the gaps of all streams together, over the time, are the mean batch. A gap is a
    step and the prompts that are read in between; a prompt is read in chunks beside such steps.
    """
    if passed.n_gaps < FEWEST_GAPS or passed.n_requests < FEWEST_REQUESTS:
        raise CantFit(
            f"{passed.n_gaps:.0f} tokens of {passed.n_requests:.0f} replies are too few to tell how"
            f" fast a replica is: wait for {FEWEST_GAPS} of {FEWEST_REQUESTS}."
        )
    batch = passed.gaps_s / seconds
    prompt = passed.prompt_tokens / passed.n_requests
    context = prompt + passed.answer_tokens / passed.n_requests / 2
    uncached = max(1.0, (passed.prompt_tokens - passed.cached_tokens) / passed.n_requests)
    step_s = steps.a_s + shape.bytes_of(batch, context) / (steps.bandwidth * steps.efficiency)
    step_s += steps.b_s * batch
    reading = min(0.9, passed.n_requests * prefill.chunk_s(uncached) / seconds)
    gap_s = passed.gaps_s / passed.n_gaps
    slower_steps = gap_s * (1 - reading) / step_s
    pass_s = prefill.pass_s(uncached) + uncached / chunk_tokens * step_s * slower_steps
    slower_prefill = 1.0
    if passed.n_prefills >= FEWEST_REQUESTS:
        slower_prefill = passed.prefill_s / passed.n_prefills / pass_s
    return Correction(slower_steps, slower_prefill, batch, context)


def _fitted(rows: Sequence[Row], wanted: Sequence[float], of: str) -> Row:
    """The coefficients, none below 0, with the least sum of squared relative errors.

    There are three, so every choice of those that are not 0 is tried.
    """
    if any(not (math.isfinite(one) and one > 0) for one in wanted):
        raise CantFit(f"A measured time is above 0: one of {of} is not.")
    scaled = [tuple(part / one for part in row) for row, one in zip(rows, wanted, strict=True)]
    best: tuple[float, Row] | None = None
    for chosen in _choices():
        found = _solved(scaled, chosen)
        if found is not None and min(found) >= 0:
            error = sum((_dot(row, found) - 1) ** 2 for row in scaled)
            if best is None or error < best[0]:
                best = (error, found)
    if best is None:
        raise CantFit(f"These points of {of} are too much alike to tell the coefficients apart.")
    return best[1]


def _choices() -> Iterator[tuple[int, ...]]:
    for n in range(_COEFFICIENTS, 0, -1):
        yield from combinations(range(_COEFFICIENTS), n)


def _solved(rows: Sequence[tuple[float, ...]], chosen: tuple[int, ...]) -> Row | None:
    """The least squares of the chosen columns to 1, by Gaussian elimination; None: singular."""
    scale = [math.sqrt(sum(row[n] ** 2 for row in rows)) for n in chosen]
    if not all(scale):
        return None
    columns = [[row[n] / size for row in rows] for n, size in zip(chosen, scale, strict=True)]
    matrix = [
        [math.fsum(x * y for x, y in zip(one, other, strict=True)) for other in columns]
        + [math.fsum(one)]
        for one in columns
    ]
    for n, pivot in enumerate(matrix):
        if pivot[n] < _ALIKE:
            return None
        for row in matrix[n + 1 :]:
            times = row[n] / pivot[n]
            row[:] = [x - times * y for x, y in zip(row, pivot, strict=True)]
    found = [0.0] * len(chosen)
    for n in reversed(range(len(chosen))):
        known = sum(matrix[n][m] * found[m] for m in range(n + 1, len(chosen)))
        found[n] = (matrix[n][-1] - known) / matrix[n][n]
    whole = [0.0, 0.0, 0.0]
    for n, value, size in zip(chosen, found, scale, strict=True):
        whole[n] = value / size
    return whole[0], whole[1], whole[2]


def _dot(row: Sequence[float], found: Row) -> float:
    return sum(x * y for x, y in zip(row, found, strict=True))


def _relative(predicted: Sequence[float], wanted: Sequence[float]) -> tuple[float, ...]:
    return tuple(one / other - 1 for one, other in zip(predicted, wanted, strict=True))


def _range(values: set[float]) -> Range:
    return min(values), max(values)
