"""What everybody has used of their budgets, as the ledger keeps it; the rules are core's own."""

from __future__ import annotations

from dataclasses import dataclass, field

from tertulia.core.plans import Plan
from tertulia.core.quota import Reservation, Settlement, reserve, settle, settling_moment, to_ms
from tertulia.core.types import Balance, BudgetExhausted, Holding, Spent, TooManyRunning, Usage


@dataclass(slots=True)
class _Ledger:
    """One owner's. Invariant: a holding is an open turn."""

    balances: dict[str, Balance] = field(default_factory=dict)
    holdings: dict[str, Holding] = field(default_factory=dict)
    last_ms: int | None = None


class Budgets:
    """Reserves at the door and settles at the end, owner by owner."""

    def __init__(self) -> None:
        self._ledgers: dict[int, _Ledger] = {}

    def reserve(
        self, reply_id: str, owner: int, plan: Plan, *, prompt: int, answer: int, now: float
    ) -> Reservation | BudgetExhausted | TooManyRunning:
        """The worst case of a turn, if there is room for it in every budget of its plan."""
        ledger = self._ledgers.setdefault(owner, _Ledger())
        spent = Spent(to_ms(now), ledger.balances, tuple(ledger.holdings.values()))
        limits = plan.limits
        found = reserve(spent, limits, prompt_tokens=prompt, answer_tokens=answer)
        if isinstance(found, Reservation):
            worst = Usage(input=prompt, output=found.answer_tokens)
            names = tuple(budget.name for budget in limits.budgets)
            ledger.holdings[reply_id] = Holding(reply_id, limits.lane, worst, names)
        return found

    def settle(self, reply_id: str, owner: int, plan: Plan, usage: Usage, now: float) -> None:
        """What the turn has used after all, nothing for one that never began."""
        ledger = self._ledgers[owner]
        del ledger.holdings[reply_id]
        ledger.last_ms = settling_moment(ledger.last_ms, now)
        ledger.balances |= settle(
            ledger.balances, Settlement(plan.limits.budgets, usage, ledger.last_ms)
        )
