"""What a plan allows: plain values, in tokens and seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tertulia.core.types import Budget, Lane, Limits

# Every account begins on it, and it is always configured.
FREE: Final = "free"
# What is asked for in batches is admitted on this one, whoever asks.
BATCH: Final = "batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One plan. `window_tokens` bounds prompt and answer together.

    `replies_running` and `open_streams` are counted over all gateways. `wait_s` is the longest
    that a turn is let wait. `models` are the names that may be picked, `auto` always. `ladder`
    says whether the overload ladder may act on it. `abandon_s` is how long a reply goes on with
    nobody following it; None is for ever. `retention_days` is how long is kept what nobody touches;
    0 is for ever.
    """

    name: str
    lane: Lane = Lane.FREE
    window_tokens: int
    answer_tokens: int
    budgets: tuple[Budget, ...] = ()
    replies_running: int = 2
    open_streams: int = 20
    wait_s: float = 10.0
    models: tuple[str, ...] = ()
    ladder: bool = False
    abandon_s: float | None = 30.0
    retention_days: int = 30
    # Fewer answer tokens than this are not worth a turn.
    min_answer_tokens: int = 64

    @property
    def limits(self) -> Limits:
        """The part that the admitting transaction checks and a turn keeps."""
        return Limits(
            budgets=self.budgets,
            replies_running=self.replies_running,
            lane=self.lane,
            abandon_s=self.abandon_s,
            min_answer_tokens=self.min_answer_tokens,
        )

    def window_on(self, model_window_tokens: int) -> int:
        """Prompt and answer together, on a model with a window of its own."""
        return min(self.window_tokens, model_window_tokens)

    def room_for_text(self, model_window_tokens: int, *, fixed_tokens: int) -> int:
        """The longest text in tokens that fits beside the fixed parts and a short answer."""
        room = self.window_on(model_window_tokens) - self.min_answer_tokens
        return max(0, room - fixed_tokens)


class Plans(dict[str, Plan]):
    """The plans by name. Who is on a plan that was taken out of the configuration is on `free`."""

    def __missing__(self, name: str) -> Plan:
        return self[FREE]
