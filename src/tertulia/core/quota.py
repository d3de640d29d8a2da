"""What a turn may reserve: every store calls this inside its admitting transaction.

Integers only, so that a balance is exact; it never reads a clock and never stores anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tertulia.core.types import BudgetExhausted, Limits, Spent, TooManyRunning, Usage

DAY_S: Final = 86_400
BUDGET: Final = "tokens_per_day"


@dataclass(frozen=True, slots=True)
class Reservation:
    """The worst case a turn may cost. `capped` says that a shorter answer had to do."""

    tokens: int
    answer_tokens: int
    capped: bool


def reserve(
    spent: Spent, limits: Limits, *, prompt_tokens: int, answer_tokens: int
) -> Reservation | BudgetExhausted | TooManyRunning:
    """Prompt and answer against what is left today; the answer shrinks before it is refused."""
    assert prompt_tokens >= 0, prompt_tokens
    assert answer_tokens > 0, answer_tokens
    if len(spent.running) >= limits.replies_running:
        return TooManyRunning(limits.replies_running)
    left = max(0, limits.tokens_per_day - spent.used_today - spent.reserved)
    needed = prompt_tokens + min(answer_tokens, limits.min_answer_tokens)
    if needed > left:
        return BudgetExhausted(BUDGET, limits.tokens_per_day, left, needed, spent.day_ends_at)
    answer = min(answer_tokens, left - prompt_tokens)
    return Reservation(prompt_tokens + answer, answer, capped=answer < answer_tokens)


def charge(usage: Usage, *, reserved: int) -> int:
    """What a turn costs: its tokens, but never more than was reserved for it.

    A replica that counts a token differently must not push an owner over the limit.
    """
    assert reserved >= 0, reserved
    return min(usage.input + usage.output, reserved)


def day_of(now: float) -> tuple[int, float]:
    """The UTC day of `now` (days since the epoch) and the moment it ends."""
    day = int(now // DAY_S)
    return day, float((day + 1) * DAY_S)


def lane_of(plan: str) -> int:
    """Where a plan's turns wait: lower lanes are served first."""
    return 0 if plan == "plus" else 1
