"""Reads load tests: our own (`python -m bench steps`) and those of `vllm bench serve`.

It takes parsed JSON, so that it touches no file; what is no load test is refused in a sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tertulia.planner.calibration import PromptPoint, Shape, StepPoint

KIND: Final = "tertulia-load-test"
# A file with more holds something else.
MOST_POINTS: Final = 10_000
_VLLM_KEYS: Final = ("max_concurrency", "completed", "total_input_tokens", "total_output_tokens")


class NoLoadTest(ValueError):
    """The document is none. The text is one sentence."""


@dataclass(frozen=True, slots=True)
class LoadTest:
    """What was measured. `shape` is known of our own tests, `model` is what they call it."""

    model: str
    steps: tuple[StepPoint, ...]
    prompts: tuple[PromptPoint, ...]
    shape: Shape | None = None


def load_test(document: object, name: str) -> LoadTest:
    """The load test in a document; `name` is what errors call it."""
    if isinstance(document, Mapping):
        if document.get("kind") == KIND:
            return _ours(document, name)
        if all(key in document for key in _VLLM_KEYS):
            return _vllm(document, name)
    raise NoLoadTest(
        f"{name} is no load test: neither of `python -m bench steps` nor of `vllm bench serve"
        " --save-result`."
    )


def together(tests: Sequence[LoadTest]) -> LoadTest:
    """Several as one: a run of vLLM's bench is one point. The first shape holds for all."""
    models = {test.model for test in tests}
    if len(models) > 1:
        raise NoLoadTest(f"These are load tests of several models: {', '.join(sorted(models))}.")
    shapes = [test.shape for test in tests if test.shape is not None]
    return LoadTest(
        model=tests[0].model,
        steps=tuple(point for test in tests for point in test.steps),
        prompts=tuple(point for test in tests for point in test.prompts),
        shape=shapes[0] if shapes else None,
    )


def _ours(document: Mapping[str, Any], name: str) -> LoadTest:
    steps = tuple(
        StepPoint(
            _positive(row, "batch", name),
            _positive(row, "context_tokens", name),
            _positive(row, "step_s", name),
        )
        for row in _rows(document, "steps", name)
    )
    prompts = tuple(
        PromptPoint(_positive(row, "tokens", name), _positive(row, "seconds", name))
        for row in _rows(document, "prompts", name)
    )
    shape = Shape(
        _positive(document, "weights_bytes", name),
        _positive(document, "kv_bytes_per_token", name),
        _positive(document, "bandwidth", name),
    )
    return LoadTest(str(document.get("model", "")), steps, prompts, shape)


def _vllm(document: Mapping[str, Any], name: str) -> LoadTest:
    """A run is one step: its median gap, with the batch that Little's law gives. One with a single
    request at a time is one prompt as well."""
    if document["max_concurrency"] is None:
        raise NoLoadTest(
            f"{name} was run without --max-concurrency: nobody knows how many answered at once."
        )
    most = _positive(document, "max_concurrency", name)
    completed = _positive(document, "completed", name)
    prompt = _positive(document, "total_input_tokens", name) / completed
    answer = _positive(document, "total_output_tokens", name) / completed
    step_s = _positive(document, "median_itl_ms", name) / 1e3
    written_s = _positive(document, "output_throughput", name) * (
        _positive(document, "mean_tpot_ms", name) / 1e3
    )
    point = StepPoint(max(1.0, min(most, written_s)), prompt + answer / 2, step_s)
    prompts: tuple[PromptPoint, ...] = ()
    if most == 1:
        prompts = (PromptPoint(prompt, _positive(document, "median_ttft_ms", name) / 1e3),)
    return LoadTest(str(document.get("model_id", "")), (point,), prompts)


def _rows(document: Mapping[str, Any], key: str, name: str) -> Sequence[Mapping[str, Any]]:
    rows = document.get(key)
    if (
        not isinstance(rows, list)
        or len(rows) > MOST_POINTS
        or not all(isinstance(row, Mapping) for row in rows)
    ):
        raise NoLoadTest(f"{name} has no list `{key}` of at most {MOST_POINTS:,} points.")
    return rows


def _positive(row: Mapping[str, Any], key: str, name: str) -> float:
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NoLoadTest(f"{name} has no number `{key}` where one belongs.")
    if not (math.isfinite(value) and value > 0):
        raise NoLoadTest(f"{name} says `{key}` is {value:g}, but it has to be above 0.")
    return float(value)
