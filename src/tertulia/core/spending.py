"""The most that one account can spend in some time: what a stolen session or key costs at worst."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tertulia.core.quota import WEIGHTS, Weights
from tertulia.core.types import Budget, BudgetUnit

DAY_MS: Final = 86_400_000


def most_spent(budgets: Sequence[Budget], unit: BudgetUnit, within_ms: int) -> int | None:
    """The most of `unit`, in thousandths, that turns begun in any `within_ms` are charged for,
    however they are asked for; None: no budget bounds it.

    A bucket gives what it holds when it is full, and what flows in meanwhile. One of another unit
    bounds this one by the kind of token that is dearest here for its price there.
    """
    assert within_ms >= 0, within_ms
    bounds = []
    for budget in budgets:
        given = budget.limit + budget.limit * within_ms // budget.refill_ms
        bound = _in_terms_of(WEIGHTS[unit], given, WEIGHTS[budget.unit])
        if bound is not None:
            bounds.append(bound)
    return min(bounds, default=None)


def _in_terms_of(wanted: Weights, given: int, paid: Weights) -> int | None:
    """The most that `given` can be turned into; None: something costs here and nothing there."""
    most = 0
    for here, there in zip(wanted, paid, strict=True):
        if here and not there:
            return None
        if here:
            most = max(most, given * here // there)
    return most
