"""Load tests are read as they were written, and what is none is refused in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from tertulia.planner.calibration import PromptPoint, Shape, StepPoint
from tertulia.planner.load_tests import LoadTest, NoLoadTest, load_test, together

OURS: dict[str, Any] = {
    "kind": "tertulia-load-test",
    "model": "small",
    "weights_bytes": 1e8,
    "kv_bytes_per_token": 5e4,
    "bandwidth": 2e10,
    "steps": [{"batch": 4, "context_tokens": 128.5, "step_s": 0.02}],
    "prompts": [{"tokens": 512, "seconds": 0.4}],
}
# As `vllm bench serve --save-result` writes it; the keys that nobody reads are left out.
VLLM: dict[str, Any] = {
    "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "max_concurrency": 32,
    "completed": 100,
    "total_input_tokens": 102_400,
    "total_output_tokens": 20_000,
    "output_throughput": 2_000.0,
    "mean_tpot_ms": 15.0,
    "median_itl_ms": 14.0,
    "median_ttft_ms": 120.0,
}


def test_our_own_is_read() -> None:
    found = load_test(OURS, "a.json")
    assert found.steps == (StepPoint(4, 128.5, 0.02),)
    assert found.prompts == (PromptPoint(512, 0.4),)
    assert found.shape == Shape(1e8, 5e4, 2e10)


def test_a_run_of_vllms_bench_is_a_step_with_the_batch_by_littles_law() -> None:
    found = load_test(VLLM, "v.json")
    (point,) = found.steps
    assert point.batch == pytest.approx(30.0)
    assert (point.context_tokens, point.step_s) == (1_024 + 100, 0.014)
    assert found.prompts == ()


def test_a_run_with_one_at_a_time_is_a_prompt_as_well() -> None:
    found = load_test({**VLLM, "max_concurrency": 1, "output_throughput": 60.0}, "v.json")
    assert found.steps[0].batch == 1
    assert found.prompts == (PromptPoint(1_024, 0.12),)


def test_several_are_one() -> None:
    one, other = load_test(VLLM, "a"), load_test({**VLLM, "max_concurrency": 1}, "b")
    both = together([one, other])
    assert both.steps == one.steps + other.steps
    assert both.prompts == other.prompts
    assert both.shape is None


def test_several_models_are_not_mixed() -> None:
    tests = [LoadTest("a", (), ()), LoadTest("b", (), ())]
    with pytest.raises(NoLoadTest, match="of several models: a, b"):
        together(tests)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "x.json is no load test"),
        ({}, "x.json is no load test"),
        ({"kind": "other"}, "x.json is no load test"),
        ({**VLLM, "max_concurrency": None}, "without --max-concurrency"),
        ({**VLLM, "completed": 0}, "`completed` is 0, but it has to be above 0"),
        ({**VLLM, "median_itl_ms": None}, "no number `median_itl_ms`"),
        ({**VLLM, "mean_tpot_ms": float("nan")}, "`mean_tpot_ms` is nan"),
        ({**OURS, "steps": 3}, "no list `steps`"),
        ({**OURS, "steps": [3]}, "no list `steps`"),
        ({**OURS, "steps": [{}] * 10_001}, "no list `steps` of at most 10,000"),
        ({**OURS, "steps": [{"batch": True}]}, "no number `batch`"),
        ({**OURS, "prompts": [{"tokens": -1, "seconds": 1}]}, "`tokens` is -1"),
        ({**OURS, "bandwidth": "fast"}, "no number `bandwidth`"),
    ],
)
def test_what_is_no_load_test_is_refused(document: object, said: str) -> None:
    with pytest.raises(NoLoadTest, match=said):
        load_test(document, "x.json")
