"""Remembers who was refused for a budget or for too many replies: whoever asks on is refused again
without a write and without being graded.

Memory is bounded and short. It refuses nobody by itself: what the owner has left is read each time.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from tertulia.core.quota import Reservation, reserve
from tertulia.core.types import BudgetExhausted, Limits, NewTurn, TooManyRunning
from tertulia.ports import Accounts, Clock

# Programs ask again within seconds; whoever pauses longer costs little.
_SECONDS: Final = 60.0
_OWNERS: Final = 10_000


class Refusals:
    """Owners and when they were last refused."""

    def __init__(self, accounts: Accounts, clock: Clock):
        self._accounts = accounts
        self._clock = clock
        self._at: OrderedDict[str, float] = OrderedDict()

    def remember(self, owner: str) -> None:
        """The store has refused a turn of this owner just now."""
        self._at[owner] = self._clock.now()
        self._at.move_to_end(owner)
        while len(self._at) > _OWNERS:
            self._at.popitem(last=False)

    async def again(self, turn: NewTurn, limits: Limits) -> BudgetExhausted | TooManyRunning | None:
        """What the store would refuse the turn for now; None to ask it, which alone may admit."""
        refused_at = self._at.get(turn.owner)
        if refused_at is None or refused_at < self._clock.now() - _SECONDS:
            return None
        answer = reserve(
            await self._accounts.spent(turn.owner),
            limits,
            prompt_tokens=turn.prompt_tokens,
            answer_tokens=turn.answer_tokens,
        )
        return None if isinstance(answer, Reservation) else answer
