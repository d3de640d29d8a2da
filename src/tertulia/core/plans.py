"""What a plan allows: plain values, in tokens and seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tertulia.core.types import Limits

# Every account begins on it, and it is always configured.
FREE: Final = "free"


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

    def window_on(self, model_window_tokens: int) -> int:
        """Prompt and answer together, on a model with a window of its own."""
        return min(self.window_tokens, model_window_tokens)

    def room_for_text(self, model_window_tokens: int, *, fixed_tokens: int) -> int:
        """The longest text in tokens that fits beside the fixed parts and a short answer."""
        room = self.window_on(model_window_tokens) - self.limits.min_answer_tokens
        return max(0, room - fixed_tokens)


class Plans(dict[str, Plan]):
    """The plans by name. Who is on a plan that was taken out of the configuration is on `free`."""

    def __missing__(self, name: str) -> Plan:
        return self[FREE]
