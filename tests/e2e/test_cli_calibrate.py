"""`tertulia calibrate`: a load test becomes a fit, and the fit a plan; a replica corrects it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tertulia.cli import app
from tertulia.core.timing import PrefillTiming, StepTiming
from tertulia.planner.calibration import CantFit, Counts
from tertulia.replica.generation import EngineCounts
from tertulia.replica.metrics import ReplicaMetrics
from tertulia.terminal.live_counts import counts_of

STEPS = StepTiming(bandwidth=3.35e12, efficiency=0.8, a_s=2e-3, b_s=2e-5)
PROMPTS = PrefillTiming(p1_s=4e-5, p2_s=5e-10, p0_s=6e-3)
WEIGHTS, KV = 35e9, 81_920.0


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def ours(most: int = 256) -> dict[str, Any]:
    """A load test of a replica that follows the law."""
    grid = [(batch, context) for batch in (1, 16, most) for context in (500, 4_000)]
    return {
        "kind": "tertulia-load-test",
        "model": "large",
        "weights_bytes": WEIGHTS,
        "kv_bytes_per_token": KV,
        "bandwidth": STEPS.bandwidth,
        "steps": [
            {
                "batch": batch,
                "context_tokens": context,
                "step_s": STEPS.step_s(WEIGHTS + KV * batch * context, batch),
            }
            for batch, context in grid
        ],
        "prompts": [{"tokens": n, "seconds": PROMPTS.pass_s(n)} for n in (100, 500, 2_000, 8_000)],
    }


def written(folder: Path, document: object, name: str = "test.json") -> Path:
    file = folder / name
    file.write_text(json.dumps(document))
    return file


def test_a_load_test_becomes_a_fit_with_the_error_of_each_point(tmp_path: Path) -> None:
    ended = run("calibrate", written(tmp_path, ours()))
    assert ended.exit_code == 0
    assert "step = 2 ms + bytes / (3.35e+12 B/s × 0.8) + 0.02 ms × batch" in ended.stdout
    assert "prompt = 6 ms + 40 µs × tokens + 0.5 ns × tokens²" in ended.stdout
    assert ended.stdout.count(", fit ") == 10


def test_a_fit_becomes_a_plan(tmp_path: Path) -> None:
    fit = tmp_path / "fit.toml"
    assert run("calibrate", written(tmp_path, ours()), "--out", fit).exit_code == 0
    ended = run("plan", "--file", fit, "--json")
    figures = json.loads(ended.stdout)["figures"]
    assert figures["large.a_s"]["value"] == pytest.approx(STEPS.a_s)
    assert figures["large.p1_s"]["by"] == str(fit)
    assert figures["large.step_s"]["value"] != figures["large.step_s"]["beside"]


def test_a_plan_beyond_what_was_measured_has_to_be_asked_for(tmp_path: Path) -> None:
    fit = tmp_path / "fit.toml"
    run("calibrate", written(tmp_path, ours(most=64)), "--out", fit)
    refused = run("plan", "--file", fit)
    assert refused.exit_code == 2
    assert "large: batch was measured from 1 to 64, and the plan has 1" in refused.stderr
    asked = run("plan", "--file", fit, "--extrapolate")
    assert asked.exit_code == 0
    assert "large: batch was measured from 1 to 64" in asked.stdout


def test_runs_of_vllms_bench_are_fitted_by_the_catalogues_shape(tmp_path: Path) -> None:
    files = []
    for n, (most, prompt) in enumerate(
        [(1, 200), (1, 1_000), (1, 4_000), (1, 9_000), (32, 200), (32, 4_000), (64, 1_000)]
    ):
        step_s = STEPS.step_s(35.3e9 + KV * most * (prompt + 100), most)
        document = {
            "model_id": "70B",
            "max_concurrency": most,
            "completed": 10,
            "total_input_tokens": 10 * prompt,
            "total_output_tokens": 2_000,
            "output_throughput": most / step_s,
            "mean_tpot_ms": 1e3 * step_s,
            "median_itl_ms": 1e3 * step_s,
            "median_ttft_ms": 1e3 * PROMPTS.pass_s(prompt),
        }
        files.append(written(tmp_path, document, f"{n}.json"))
    ended = run("calibrate", *files)
    assert "step = 2 ms + bytes / (3.35e+12 B/s × 0.8) + 0.02 ms × batch" in ended.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON."),
        ("[" * 100_000, "is no JSON."),
        ("{}", "is no load test"),
        (json.dumps({**ours(), "steps": ours()["steps"][:5]}), "takes 6 points, and there are 5"),
        (json.dumps({**ours(), "prompts": []}), "takes 4 lengths of prompts, and there are 0"),
    ],
)
def test_what_can_not_be_fitted_is_refused_in_a_sentence(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    ended = run("calibrate", file)
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    ended = run("calibrate", tmp_path / "nowhere.json")
    assert ended.exit_code == 2
    assert "nowhere.json can't be read: No such file" in ended.stderr


def test_a_replica_that_does_not_answer_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, ours())
    ended = run("calibrate", file, "--live", "http://127.0.0.1:1", "--seconds", "1")
    assert ended.exit_code == 2
    assert "http://127.0.0.1:1 does not show its metrics" in ended.stderr


def test_the_range_of_a_fit_is_part_of_it(tmp_path: Path) -> None:
    fit = tmp_path / "fit.toml"
    run("calibrate", written(tmp_path, ours()), "--out", fit, "--pool", "small")
    table = tomllib.loads(fit.read_text())["small"]
    assert (table["weights_bytes"], table["kv_bytes_per_token"]) == (WEIGHTS, KV)
    assert table["measured_batch"] == [1, 256]
    assert table["measured_prompt_tokens"] == [100, 8_000]


def test_our_own_replicas_metrics_are_read() -> None:
    counts = EngineCounts(*[n + 1 for n in range(len(EngineCounts.__dataclass_fields__))])
    page = ReplicaMetrics("small", lambda: counts).text().decode()
    found = counts_of(page)
    assert found.prompt_tokens == counts.n_prompt_tokens
    assert found.cached_tokens == counts.n_prefix_hits
    assert found.answer_tokens == counts.n_generated_tokens


def test_older_names_are_known_and_labels_are_added_up() -> None:
    page = "\n".join(
        f'{name}{{engine="{n}"}} {n + 1}'
        for n in (0, 1)
        for name in (
            "vllm:time_per_output_token_seconds_sum",
            "vllm:time_per_output_token_seconds_count",
            "vllm:e2e_request_latency_seconds_count",
            "vllm:prompt_tokens_total",
            "vllm:prefix_cache_hits_total",
            "vllm:generation_tokens_total",
            "vllm:request_prefill_time_seconds_sum",
            "vllm:request_prefill_time_seconds_count",
        )
    )
    assert counts_of(page + "\n") == Counts(*[3.0] * 8)


@pytest.mark.parametrize(
    ("page", "said"),
    [("", "no metric vllm:inter_token"), ("{{{", "no page of metrics")],
)
def test_a_page_that_can_not_be_compared_is_refused(page: str, said: str) -> None:
    with pytest.raises(CantFit, match=said):
        counts_of(page)
