"""How long accelerators work for a message: from a calibration, or from what a token costs."""

from __future__ import annotations

from dataclasses import dataclass

from tertulia.core.timing import PrefillTiming, StepTiming, step_bytes


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
    """A replica's speed, as it was fitted to measurements: the two laws of `core.timing`, and the
    bytes of a model on so many accelerators together."""

    step: StepTiming
    prefill: PrefillTiming
    accelerators: int
    weights_bytes: float
    kv_bytes: float

    def timing(self, *, batch: int, context_tokens: float, new_tokens: float) -> Timing:
        """The share of its accelerators that one message of a full batch has, in their seconds."""
        n_bytes = step_bytes(
            weight_bytes=self.weights_bytes / self.accelerators,
            kv_bytes_per_token=self.kv_bytes / self.accelerators,
            context_tokens=batch * context_tokens,
        )
        write_s = self.accelerators * self.step.step_s(n_bytes, batch) / batch
        read_s = self.accelerators * self.prefill.pass_s(new_tokens) / new_tokens
        return Timing(read_s, write_s)
