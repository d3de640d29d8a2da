"""Looks at a serving replica's metrics twice, and says how it compares with its fit."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Final

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from tertulia.core.timing import PrefillTiming, StepTiming
from tertulia.planner.calibration import CantFit, Correction, Counts, Shape, corrected
from tertulia.terminal.options import fail, remark
from tertulia.terminal.pages import NoPage, page_of

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
    """By what the replica does in the next so many seconds; ends the command if it tells nothing.

    TERTULIA_REPLICA_KEY is shown to a replica that wants one.
    """
    key = os.environ.get("TERTULIA_REPLICA_KEY")
    try:
        with httpx2.Client(trust_env=False) as client:
            before = counts_of(page_of(client, url, key))
            remark(f"looking at {url} for {seconds:g} s …")
            threading.Event().wait(seconds)
            passed = counts_of(page_of(client, url, key)).since(before)
        steps, prefill = timings
        return corrected(
            passed, seconds, steps=steps, prefill=prefill, shape=shape, chunk_tokens=chunk_tokens
        )
    except (CantFit, NoPage) as error:
        fail(str(error), status=2)


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
