"""How long an engine's steps take: the law that the planner, the simulator and the fits share.

A step of decoding reads the weights once and the KV cache of each sequence; a pass over a prompt
computes. Both are laws of three coefficients, which a load test gives.
Nothing here knows an engine, a file or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepTiming:
    """A step of decoding takes `a_s + bytes / (bandwidth × efficiency) + b_s × batch` seconds.

    `a_s`: what each step costs, however small: launches and the talk between accelerators.
    `b_s`: what each further sequence costs besides its bytes: sampling and scheduling.
    `bandwidth` is what the data sheet says of one accelerator in bytes a second, and bytes are
    those that one accelerator reads. With a_s = b_s = 0 it is the roofline of one factor.
    """

    bandwidth: float
    efficiency: float
    a_s: float = 0.0
    b_s: float = 0.0

    def __post_init__(self) -> None:
        if not (self.bandwidth > 0 and self.efficiency > 0):
            raise ValueError("A step needs a bandwidth and an efficiency above 0.")
        if not (self.a_s >= 0 and self.b_s >= 0):
            raise ValueError("A step can't take less than no time: a and b are 0 or more.")

    def step_s(self, n_bytes: float, batch: int) -> float:
        """Seconds of one step with `batch` sequences that reads `n_bytes` on each accelerator."""
        return self.a_s + n_bytes / (self.bandwidth * self.efficiency) + self.b_s * batch


@dataclass(frozen=True, slots=True)
class PrefillTiming:
    """A pass over n tokens of prompt takes `p0_s + p1_s × n + p2_s × n²` seconds.

    `p0_s` is the fixed cost of a pass of its own; a chunk inside a step of decoding does not pay
    it, as the step's `a_s` holds it already. `p2_s` is attention, which grows with the square.
    """

    p1_s: float
    p2_s: float = 0.0
    p0_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.p1_s > 0:
            raise ValueError("Reading a token takes some time: p1 is above 0.")
        if not (self.p0_s >= 0 and self.p2_s >= 0):
            raise ValueError("A pass can't take less than no time: p0 and p2 are 0 or more.")

    def pass_s(self, n_tokens: float) -> float:
        """Seconds of a pass of its own over `n_tokens`, none of them cached."""
        return self.p0_s + self.chunk_s(n_tokens)

    def chunk_s(self, n_tokens: float, n_before: float = 0.0) -> float:
        """Seconds that `n_tokens` add to a step in which others decode.

        `n_before` tokens of the same prompt are in the cache already; attention reads them too, so
        that the chunks of a prompt take together what one pass takes.
        """
        attention = (n_before + n_tokens) ** 2 - n_before**2
        return self.p1_s * n_tokens + self.p2_s * attention

    def tokens_per_s(self, n_tokens: float) -> float:
        """How fast prompts of `n_tokens` uncached tokens are read between steps of decoding."""
        return n_tokens / self.chunk_s(n_tokens)


def step_bytes(*, weight_bytes: float, kv_bytes_per_token: float, context_tokens: float) -> float:
    """What one accelerator reads in a step: its weights, and the KV of all contexts together.

    The two byte counts are those of one accelerator: a model's divided by its tensor parallelism.
    """
    return weight_bytes + kv_bytes_per_token * context_tokens
