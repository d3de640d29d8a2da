"""What a scenario of single steps says: some streams on one replica, and one huge prompt."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tertulia.plan_tables import Table


class StepsTable(Table):
    """One replica, step by step. `scheduler`: the engine's own, with its target between tokens;
    `budget`: so many tokens a step, decodes included; `whole`: each prompt in one step.

    `overlap` says whether reading hides behind the memory that decoding reads (max), or adds (sum).
    """

    scheduler: Literal["own", "budget", "whole"] = "own"
    streams: int = Field(99, ge=1, le=2_000)
    context_tokens: int = Field(3_400, ge=1, le=1_000_000)
    prompt_tokens: int = Field(30_000, ge=1, le=1_000_000)
    at_s: float = Field(1.0, ge=0, le=600)
    budget_tokens: int = Field(512, ge=2, le=1_000_000)
    target_ms: float = Field(50.0, gt=0, le=10_000)
    overlap: Literal["max", "sum"] = "max"
    # A step: what is fixed, each token of the caches that is looked at, each that is computed, each
    # pair of tokens that attend to each other. As planned for 70B on four accelerators.
    fixed_ms: float = Field(16.85, ge=0, le=10_000)
    scan_ns: float = Field(39.44, ge=0, le=1_000_000)
    token_us: float = Field(87.5, gt=0, le=100_000)
    attended_ns: float = Field(0.0, ge=0, le=100_000)
