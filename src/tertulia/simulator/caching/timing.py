"""What a step of an engine takes on an accelerator, by the two formulas a load test is fitted to.

It must never decide what goes into a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tertulia.core.timing import PrefillTiming, StepTiming


@dataclass(frozen=True, slots=True)
class EngineTiming:
    """The two laws of `core.timing` for one model. `weight_bytes` and `token_bytes` (of the cache,
    per token) are one accelerator's part of them."""

    name: str
    weight_bytes: float
    token_bytes: float
    step: StepTiming
    prefill: PrefillTiming
    reads_weights: bool = False  # a step that only reads takes the weights' time, and not p0

    @property
    def decode_fixed_s(self) -> float:
        """What a step with decodes takes however few they are."""
        return self.step.step_s(self.weight_bytes, 0)

    @property
    def context_token_s(self) -> float:
        """What each token of context of a decoding sequence adds to a step."""
        return self.token_bytes / (self.step.bandwidth * self.step.efficiency)

    @property
    def read_fixed_s(self) -> float:
        """What a step that only reads takes however little it reads."""
        return self.decode_fixed_s if self.reads_weights else self.prefill.p0_s

    @property
    def prefill_per_s(self) -> float:
        """Prompt tokens a second, of a short prompt that has the engine to itself."""
        return 1.0 / self.prefill.p1_s

    def step_s(self, batch: int, context_tokens: float) -> float:
        """A step that decodes one token for each of the batch, and reads nothing."""
        n_bytes = self.weight_bytes + self.token_bytes * context_tokens
        return self.step.step_s(n_bytes, batch)


_H100_BYTES_PER_S: Final = 3.35e12
_WEIGHT_BYTES: Final = 70.6e9 / 8  # 70B in FP8 on eight accelerators
_TOKEN_BYTES: Final = 20 * 1024.0  # 160 KiB of cache per token, an eighth of them

# The published estimate: 60 % of the bandwidth, 40 % of the arithmetic, and nothing else.
ROOFLINE: Final = EngineTiming(
    "roofline",
    _WEIGHT_BYTES,
    _TOKEN_BYTES,
    StepTiming(_H100_BYTES_PER_S, 0.6),
    PrefillTiming(22.3e-6),
    reads_weights=True,
)
# Fitted to measured H100 kernels (vLLM's tables in AIConfigurator 0.12): 4.8 % at most off for
# steps, 3.4 % for prompts.
MEASURED: Final = EngineTiming(
    "measured",
    _WEIGHT_BYTES,
    _TOKEN_BYTES,
    StepTiming(_H100_BYTES_PER_S, 0.8, a_s=4.90e-3, b_s=0.031e-3),
    PrefillTiming(34.93e-6, p2_s=2.548e-11, p0_s=7.95e-3),
)
TIMINGS: Final = {timing.name: timing for timing in (ROOFLINE, MEASURED)}
