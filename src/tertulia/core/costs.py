"""What a step of the engine takes, by a formula whose coefficients are measured on the machine.

It must never decide what goes into a step; it only answers how long that would last.
"""

from dataclasses import dataclass, replace

WEIGHT = 0.1  # of each new measurement: one odd step must not matter, twenty of them must
ODD = 4.0  # no step counts as more times as long, or as short, as predicted: it may be a hiccup
FARTHEST = 1000.0  # from what was measured: a clock that stands still must not make tokens free


@dataclass(frozen=True)
class Work:
    """The batch of one step, as far as its duration depends on it."""

    n_tokens: int = 0
    n_attended: int = 0  # pairs of a token and one before it in its sequence
    n_scanned: int = 0  # pairs of a token and one that the cache holds for whomever

    def __add__(self, other: "Work") -> "Work":
        return Work(
            self.n_tokens + other.n_tokens,
            self.n_attended + other.n_attended,
            self.n_scanned + other.n_scanned,
        )


@dataclass(frozen=True)
class StepCost:
    """step = scale · (fixed + token · n_tokens + attended · n_attended + scanned · n_scanned).

    docs/explanation/engine.md has the measurements behind it. `scale` follows the machine, which is
    not ours alone.
    """

    fixed_s: float
    token_s: float
    attended_s: float = 0.0
    scanned_s: float = 0.0
    scale: float = 1.0

    def seconds(self, work: Work) -> float:
        """How long a step with this batch is expected to last."""
        return self.scale * (
            self.fixed_s
            + self.token_s * work.n_tokens
            + self.attended_s * work.n_attended
            + self.scanned_s * work.n_scanned
        )

    def tokens_within(self, room_s: float, context: int, n_used: int) -> int:
        """How many tokens after `context` may be added to a step that has so much time left."""
        each_s = self.token_s + self.attended_s * context + self.scanned_s * n_used
        return max(0, int(room_s / (self.scale * each_s)))

    def observed(self, work: Work, took_s: float) -> "StepCost":
        """The formula after a step of that work took so long."""
        ratio = min(ODD, max(1 / ODD, took_s / self.seconds(work)))
        scale = self.scale * (1 - WEIGHT + WEIGHT * ratio)
        return replace(self, scale=min(FARTHEST, max(1 / FARTHEST, scale)))
