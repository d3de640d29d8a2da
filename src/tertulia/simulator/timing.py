"""How long accelerators work for a message: from a calibration, or from what a token costs.

Step and prefill follow the formulas that `tertulia plan` uses; here they only become seconds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Accelerator-seconds of one model: `read_s` for a new token of a prompt, `write_s` for a token
    of an answer, `fixed_s` for each message."""

    read_s: float
    write_s: float
    fixed_s: float = 0.0

    def seconds(self, *, new_tokens: float, answer_tokens: float) -> float:
        """How long one accelerator is busy with such a message."""
        return self.fixed_s + self.read_s * new_tokens + self.write_s * answer_tokens


@dataclass(frozen=True, slots=True)
class Calibration:
    """A replica's speed, as it was fitted to measurements.

    A step takes `a_s + bytes / (bandwidth * e) + b_s * batch`, the reading of n tokens
    `p0_s + p1_s * n + p2_s * n²`. `bytes` are the weights and the batch's cache, per accelerator.
    """

    a_s: float
    e: float
    b_s: float
    p0_s: float
    p1_s: float
    p2_s: float
    accelerators: int
    weights_bytes: float
    kv_bytes: float
    bandwidth: float

    def step_s(self, batch: float, context_tokens: float) -> float:
        """One step in which `batch` sequences of so many tokens each get one more."""
        read = self.weights_bytes + batch * context_tokens * self.kv_bytes
        return self.a_s + read / (self.accelerators * self.bandwidth * self.e) + self.b_s * batch

    def prefill_s(self, n_tokens: float) -> float:
        """Reading so many new tokens of one prompt by itself."""
        return self.p0_s + self.p1_s * n_tokens + self.p2_s * n_tokens * n_tokens

    def timing(self, *, batch: float, context_tokens: float, new_tokens: float) -> Timing:
        """The share of its accelerators that one message of a full batch has, in their seconds."""
        write_s = self.accelerators * self.step_s(batch, context_tokens) / batch
        read_s = self.accelerators * self.prefill_s(new_tokens) / new_tokens
        return Timing(read_s, write_s)
