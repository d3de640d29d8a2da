"""`tertulia calibrate`: how fast your own replicas are, from a load test or from live metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from tertulia.core.timing import PrefillTiming, StepTiming
from tertulia.planner.calibration import (
    CantFit,
    PrefillFit,
    Shape,
    StepFit,
    fit_prefill,
    fit_steps,
)
from tertulia.planner.load_tests import LoadTest, NoLoadTest, load_test, together
from tertulia.planner.plan import Wish, plan_for
from tertulia.planner.wishes import Nonsense
from tertulia.terminal.options import fail, remark

MOST_BYTES = 64 << 20  # of a load test: one of vLLM's with every request has some megabytes


def calibrate(
    files: Annotated[
        list[Path],
        typer.Argument(help="Load tests: of `bench steps`, or runs of `vllm bench serve`."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write the fit as TOML, for `tertulia plan --file`.")
    ] = None,
    pool: Annotated[
        Literal["large", "small"], typer.Option(help="The pool that it is of.")
    ] = "large",
    model: Annotated[str, typer.Option(help="Of vLLM's runs: the model.")] = "llama-3.1-70b",
    precision: Annotated[str, typer.Option(help="Of vLLM's runs: bf16, fp8 or int4.")] = "bf16",
    width: Annotated[int, typer.Option(min=1, help="Of vLLM's runs: tensor parallelism.")] = 4,
    accelerator: Annotated[str, typer.Option(help="Of vLLM's runs: what on.")] = "h100-sxm",
    live: Annotated[
        str | None, typer.Option(help="URL of a serving replica: corrects the fit by its metrics.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=1, max=3_600, help="Between two looks at those metrics.")
    ] = 60.0,
    chunk_tokens: Annotated[
        int, typer.Option(min=1, help="Of a prompt in one of that replica's steps.")
    ] = 512,
) -> None:
    """Fit how long steps and prompts take, by least squares on the relative error.

    A step takes a + bytes/(bandwidth × e) + b × batch; a prompt p0 + p1·n + p2·n². The first takes
    six points of three batches and two contexts, the second four lengths. What is beyond the
    measured batches, contexts and prompts is refused by `tertulia plan` unless asked for.
    """
    try:
        test = together([load_test(_document(file), str(file)) for file in files])
        shape = test.shape or _shape(model, precision, width, accelerator)
        steps, prefill = fit_steps(test.steps, shape), fit_prefill(test.prompts)
    except (CantFit, NoLoadTest, Nonsense) as error:
        fail(str(error), status=2)
    for line in _fit_lines(test, steps, prefill):
        typer.echo(line)
    timings = steps.timing, prefill.timing
    if live is not None:
        from tertulia.terminal.live_counts import correction_of

        found = correction_of(live, seconds, timings, shape, chunk_tokens)
        typer.echo(
            f"live, {found.batch:.1f} at once of {found.context_tokens:,.0f} tokens: steps take"
            f" {found.steps:.2f} × the fit, prompts {found.prefill:.2f} ×"
        )
        timings = found.of(*timings)
    if out is not None:
        table = _toml(pool, steps, prefill, *timings) + _shape_lines(test.shape)
        out.write_text(table, encoding="utf-8")
        remark(f"written to {out}; next: tertulia plan --file {out}")


def _document(file: Path) -> object:
    try:
        if file.stat().st_size > MOST_BYTES:
            fail(f"{file} is larger than {MOST_BYTES >> 20} MB: no load test is.", status=2)
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        fail(f"{file} can't be read: {error.strerror}.", status=2)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        fail(f"{file} is no JSON.", status=2)


def _shape(model: str, precision: str, width: int, accelerator: str) -> Shape:
    """What a step reads on one accelerator, by the catalogue."""
    hardware = {"model": model, "precision": precision, "accelerator": accelerator}
    document = {"large": {**hardware, "accelerators_per_replica": width}}
    sheet = plan_for([Wish(document, "flag")]).sheet
    return Shape(
        sheet.value("large.weights_bytes_each"),
        sheet.value("large.kv_bytes_per_token") / width,
        sheet.value("large.bandwidth"),
    )


def _fit_lines(test: LoadTest, steps: StepFit, prefill: PrefillFit) -> Iterator[str]:
    """The fit, and each point's error."""
    a_ms, b_ms = 1e3 * steps.timing.a_s, 1e3 * steps.timing.b_s
    yield (
        f"step = {a_ms:.3g} ms + bytes / ({steps.timing.bandwidth:.3g} B/s ×"
        f" {steps.timing.efficiency:.3g}) + {b_ms:.3g} ms × batch"
    )
    yield f"  errs by {steps.worst:.1%} at most:"
    for point, residual in zip(test.steps, steps.residuals, strict=True):
        yield (
            f"    {point.batch:>6.1f} at once of {point.context_tokens:>8,.0f} tokens:"
            f" {1e3 * point.step_s:>9.2f} ms, fit {residual:+.1%}"
        )
    p = prefill.timing
    yield (
        f"prompt = {1e3 * p.p0_s:.3g} ms + {1e6 * p.p1_s:.4g} µs × tokens"
        f" + {1e9 * p.p2_s:.3g} ns × tokens²"
    )
    yield f"  errs by {prefill.worst:.1%} at most:"
    for prompt, residual in zip(test.prompts, prefill.residuals, strict=True):
        took_ms = 1e3 * prompt.seconds
        yield f"    {prompt.tokens:>8,.0f} tokens: {took_ms:>9.1f} ms, fit {residual:+.1%}"


def _toml(
    pool: str, steps: StepFit, prefill: PrefillFit, step: StepTiming, prompt: PrefillTiming
) -> str:
    """A table for `tertulia plan`: the coefficients, and within what they were measured."""
    ranges: Mapping[str, Sequence[float]] = {
        "measured_batch": steps.batches,
        "measured_context_tokens": steps.contexts,
        "measured_prompt_tokens": prefill.prompts,
    }
    values = {
        "bandwidth": step.bandwidth,
        "efficiency": step.efficiency,
        "a_s": step.a_s,
        "b_s": step.b_s,
        "p0_s": prompt.p0_s,
        "p1_s": prompt.p1_s,
        "p2_s": prompt.p2_s,
    }
    lines = [f"[{pool}]", *(f"{name} = {value!r}" for name, value in values.items())]
    lines += [f"{name} = {[*map(float, one)]}" for name, one in ranges.items()]
    return "\n".join(lines) + "\n"


def _shape_lines(shape: Shape | None) -> str:
    """The model of a test of our own, which the catalogue does not have."""
    if shape is None:
        return ""
    return (
        "accelerators_per_replica = 1\n"
        f"weights_bytes = {shape.weights_bytes!r}\n"
        f"kv_bytes_per_token = {shape.kv_bytes_per_token!r}\n"
    )
