"""A replica's report comes from outside: only what can be reckoned with is believed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tertulia.core.fleet import ReplicaReport, is_sound

SOUND = ReplicaReport("r1", "first", "http://10.0.0.9:8000", "small-1", 4)


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"window": 32_768, "prefill_per_s": 812.5, "cache_used_share": 1.0},
        {"running": 4, "waiting": 90, "owed_tokens": 10**6, "tokens_done": 10**12},
    ],
)
def test_a_report_like_those_of_replicas_is_sound(told: dict[str, Any]) -> None:
    assert is_sound(replace(SOUND, **told))


@pytest.mark.parametrize(
    "told",
    [
        {"slots": 0},
        {"slots": 10**9},
        {"window": 0},
        {"running": -1},
        {"tokens_done": 2**63},
        {"prefill_per_s": -1.0},
        {"prefill_per_s": math.inf},
        {"cache_used_share": math.nan},
        {"name": ""},
        {"name": "r" * 1000},
        {"name": "half a \ud83d"},
        {"model": "two\nlines"},
    ],
)
def test_a_report_that_nobody_could_reckon_with_is_not(told: dict[str, Any]) -> None:
    assert not is_sound(replace(SOUND, **told))
