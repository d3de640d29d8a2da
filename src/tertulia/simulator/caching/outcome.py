"""What a run showed: hits, times to the first token, gaps, and how many were inside the targets."""

from __future__ import annotations

from dataclasses import dataclass, field

from tertulia.simulator.caching.turns import Turn


@dataclass(frozen=True, slots=True)
class Targets:
    """A turn is good with its first token within one and its mean gap within the other."""

    ttft_s: float = 1.0
    gap_s: float = 0.05


@dataclass(slots=True)
class Outcome:
    """The turns that ended while it was measured, `seconds` long.

    `n_late` are turns that had not ended by then and whose first token was late already: a policy
    under which nobody is answered must not look as if nobody was late.
    """

    seconds: float
    targets: Targets = field(default_factory=Targets)
    n_turns: int = 0
    n_good: int = 0
    n_late: int = 0
    n_moved: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    ttfts_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    turns_by_replica: list[int] = field(default_factory=list)

    def count(self, turn: Turn) -> None:
        """One that has ended."""
        assert turn.cached is not None, "it has been read"
        self.n_turns += 1
        self.n_moved += turn.has_moved
        self.prompt_tokens += turn.prompt
        self.cached_tokens += turn.cached
        self.ttfts_s.append(turn.ttft_s)
        self.gaps_s.append(turn.gap_s)
        self.turns_by_replica[turn.replica] += 1
        self.n_good += turn.ttft_s < self.targets.ttft_s and turn.gap_s < self.targets.gap_s

    @property
    def hit_share(self) -> float:
        """Of all prompt tokens, those that were found."""
        return self.cached_tokens / max(1, self.prompt_tokens)

    @property
    def turns_per_s(self) -> float:
        return self.n_turns / self.seconds

    @property
    def good_per_s(self) -> float:
        """Turns a second inside the targets."""
        return self.n_good / self.seconds

    @property
    def good_share(self) -> float:
        return self.n_good / max(1, self.n_turns + self.n_late)

    @property
    def moved_share(self) -> float:
        """Turns that did not go where their conversation was last."""
        return self.n_moved / max(1, self.n_turns)

    @property
    def imbalance(self) -> float:
        """Turns on the busiest replica, in parts of the mean."""
        return max(self.turns_by_replica) * len(self.turns_by_replica) / max(1, self.n_turns)

    def ttft_s(self, percent: float) -> float:
        return percentile(self.ttfts_s, percent)

    def gap_s(self, percent: float) -> float:
        return percentile(self.gaps_s, percent)


def percentile(values: list[float], percent: float) -> float:
    """The value that so many percent do not exceed; 0 of none."""
    if not values:
        return 0.0
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))]
