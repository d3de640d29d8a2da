"""Looks at a serving replica's metrics twice, and says how it compares with its fit."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Final

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from tertulia.planner.calibration import CantFit, Correction, Counts, Shape, corrected
from tertulia.planner.timing import PrefillTiming, StepTiming
from tertulia.terminal.options import fail, remark

_ANSWER_S: Final = 10.0
MOST_BYTES: Final = 8 << 20  # of a metrics page
# By engine version; the first that is there counts.
NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "gaps_s": (
        "vllm:inter_token_latency_seconds_sum",
        "vllm:time_per_output_token_seconds_sum",
    ),
    "n_gaps": (
        "vllm:inter_token_latency_seconds_count",
        "vllm:time_per_output_token_seconds_count",
    ),
    "n_requests": ("vllm:e2e_request_latency_seconds_count",),
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "cached_tokens": ("vllm:prompt_tokens_cached_total", "vllm:prefix_cache_hits_total"),
    "answer_tokens": ("vllm:generation_tokens_total",),
    "prefill_s": ("vllm:request_prefill_time_seconds_sum",),
    "n_prefills": ("vllm:request_prefill_time_seconds_count",),
}


def correction_of(
    url: str,
    seconds: float,
    timings: tuple[StepTiming, PrefillTiming],
    shape: Shape,
    chunk_tokens: int,
) -> Correction:
    """By what the replica does in the next so many seconds; ends the command if it can't be said.

    TERTULIA_REPLICA_KEY is shown to a replica that wants one.
    """
    try:
        before = counts_of(_page(url))
        remark(f"looking at {url} for {seconds:g} s …")
        threading.Event().wait(seconds)
        passed = counts_of(_page(url)).since(before)
        steps, prefill = timings
        return corrected(
            passed, seconds, steps=steps, prefill=prefill, shape=shape, chunk_tokens=chunk_tokens
        )
    except CantFit as error:
        fail(str(error), status=2)
    except httpx2.HTTPError as error:
        fail(f"{url} does not show its metrics: {error or type(error).__name__}.", status=2)


def counts_of(page: str) -> Counts:
    """The counters on a metrics page, all labels together; `CantFit` names one that is missing."""
    sums: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    except ValueError as error:
        raise CantFit(f"This is no page of metrics: {error}.") from error
    found = {}
    for field, names in NAMES.items():
        known = next((name for name in names if name in sums), None)
        if known is None:
            raise CantFit(f"The replica has no metric {names[0]}, so it can't be compared.")
        found[field] = sums[known]
    return Counts(**found)


def _page(url: str) -> str:
    key = os.environ.get("TERTULIA_REPLICA_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with (
        httpx2.Client(timeout=_ANSWER_S, headers=headers, trust_env=False) as client,
        client.stream("GET", f"{url.rstrip('/')}/metrics") as answer,
    ):
        answer.raise_for_status()
        page = bytearray()
        for part in answer.iter_bytes():
            page += part
            if len(page) > MOST_BYTES:
                raise CantFit(f"The replica's metrics are larger than {MOST_BYTES >> 20} MB.")
    return page.decode("utf-8", "replace")
