"""What a step of the engine takes, by a formula whose coefficients are measured on the machine.

It must never decide what goes into a step; it only answers how long that would last.
"""

from dataclasses import dataclass, replace

WEIGHT = 0.1  # of each new measurement: one odd step must not matter, twenty of them must
ODD = 4.0  # no step counts as more times as long, or as short, as predicted: it may be a hiccup
FARTHEST = 1000.0  # from what was measured: a clock that stands still must not make tokens free


@dataclass(frozen=True)
class Work:
    """A part of a step's batch, as far as its duration depends on it."""

    n_tokens: int = 0
    n_attended: int = 0  # pairs of a token and one before it in its sequence
    n_scanned: int = 0  # pairs of a token and one that the cache holds for whomever

    def __add__(self, other: "Work") -> "Work":
        return Work(
            self.n_tokens + other.n_tokens,
            self.n_attended + other.n_attended,
            self.n_scanned + other.n_scanned,
        )


NOTHING = Work()


@dataclass(frozen=True)
class StepCost:
    """step = scale · (fixed + work of the decodes) + prefill scale · work of the prefill, where
    work = token · n_tokens + attended · n_attended + scanned · n_scanned.

    docs/explanation/engine.md has the measurements behind it. The scales follow the machine, which
    is not ours alone. They are two, or decodes would seem the longer the more is read beside them,
    and the longer they seem, the more may be read.
    """

    fixed_s: float
    token_s: float
    attended_s: float = 0.0
    scanned_s: float = 0.0
    scale: float = 1.0
    prefill_scale: float = 1.0

    def seconds(self, decodes: Work, prefill: Work = NOTHING) -> float:
        """How long a step with this batch is expected to last."""
        decode_s = self.scale * (self.fixed_s + self._work_s(decodes))
        return decode_s + self.prefill_scale * self._work_s(prefill)

    def tokens_within(self, room_s: float, context: int, n_used: int) -> int:
        """How many tokens after `context` may be read in a step that has so much time left."""
        each_s = self._work_s(Work(1, context, n_used))
        return max(0, int(room_s / (self.prefill_scale * each_s)))

    def observed(self, decodes: Work, prefill: Work, took_s: float) -> "StepCost":
        """The formula after a step with this batch took so long."""
        decode_s = self.seconds(decodes)
        if prefill == NOTHING:
            return replace(self, scale=_moved(self.scale, took_s / decode_s))
        ratio = (took_s - decode_s) / (self.prefill_scale * self._work_s(prefill))
        return replace(self, prefill_scale=_moved(self.prefill_scale, ratio))

    def _work_s(self, work: Work) -> float:
        return (
            self.token_s * work.n_tokens
            + self.attended_s * work.n_attended
            + self.scanned_s * work.n_scanned
        )


def _moved(scale: float, ratio: float) -> float:
    moved = scale * (1 - WEIGHT + WEIGHT * min(ODD, max(1 / ODD, ratio)))
    return min(FARTHEST, max(1 / FARTHEST, moved))
