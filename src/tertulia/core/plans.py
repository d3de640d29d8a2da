"""What a plan allows: plain values, in tokens and seconds."""

from __future__ import annotations

from dataclasses import dataclass

from tertulia.core.types import Limits


@dataclass(frozen=True, slots=True)
class Plan:
    """One plan. `window_tokens` bounds prompt and answer together.

    `abandon_s` is how long a reply goes on with nobody following it; None is for ever.
    """

    name: str
    window_tokens: int
    answer_tokens: int
    limits: Limits
    abandon_s: float | None = 30.0

    def room_for_message(self, *, fixed_tokens: int) -> int:
        """The longest message in tokens that fits beside the fixed parts and a short answer."""
        return max(0, self.window_tokens - self.limits.min_answer_tokens - fixed_tokens)
