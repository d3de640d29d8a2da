"""What a turn may reserve and what it is charged: every store calls this inside its transactions.

Integers only, in thousandths of a unit, so that a balance is exact. It never reads a clock and
never stores anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tertulia.core.types import (
    Balance,
    Budget,
    BudgetExhausted,
    BudgetUnit,
    Drift,
    Limits,
    Spent,
    TooManyRunning,
    Usage,
)

MILLI: Final = 1000  # of a unit: a tenth of a token has to be a whole number


class Weights(NamedTuple):
    """What a token of each kind, and a turn as such, costs in thousandths of a unit."""

    new: int
    cached: int
    output: int
    turn: int


WEIGHTS: Final[Mapping[BudgetUnit, Weights]] = {
    # By accelerator time: an output token is a whole pass of decoding, a cached one hardly any work
    "units": Weights(new=MILLI, cached=MILLI // 10, output=4 * MILLI, turn=0),
    "tokens": Weights(new=MILLI, cached=MILLI, output=MILLI, turn=0),
    "prompt_tokens": Weights(new=MILLI, cached=MILLI, output=0, turn=0),
    "turns": Weights(new=0, cached=0, output=0, turn=MILLI),
}


# The notice of a reply whose answer may be no longer than there is room: in a budget, or a window.
CAPPED_NOTICE: Final = "answer_capped"


@dataclass(frozen=True, slots=True)
class Reservation:
    """The worst case a turn may cost, in tokens. `capped` says that a shorter answer had to do."""

    tokens: int
    answer_tokens: int
    capped: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """How an owner stands with one budget, in thousandths.

    `full_at_ms` is when all of it is there again if everything reserved is used; None: it is now.
    """

    budget: Budget
    remaining: int
    full_at_ms: int | None


class Settlement(NamedTuple):
    """What a run was charged for, and when: each moment of an owner is later than the last."""

    budgets: tuple[Budget, ...]
    usage: Usage
    at_ms: int


def reserve(
    spent: Spent, limits: Limits, *, prompt_tokens: int, answer_tokens: int
) -> Reservation | BudgetExhausted | TooManyRunning:
    """The worst case against every budget; the answer shrinks before it is refused.

    Of several budgets that have too little, the one is named that will have it last.
    """
    assert prompt_tokens >= 0, prompt_tokens
    assert answer_tokens > 0, answer_tokens
    if len(spent.running_beside(limits.lane)) >= limits.replies_running:
        return TooManyRunning(limits.replies_running)
    shortest = Usage(input=prompt_tokens, output=min(answer_tokens, limits.min_answer_tokens))
    answer, refused = answer_tokens, list[BudgetExhausted]()
    for budget in limits.budgets:
        left = budget.limit - taken(budget, spent)
        needed = cost(budget.unit, shortest)
        # What takes nothing of a budget passes, also where a smaller limit left less than none
        if needed > max(0, left):
            refused.append(_exhausted(budget, left, needed, spent.now_ms))
        else:
            answer = min(answer, _longest(budget, left, prompt_tokens, answer))
    if refused:
        return max(refused, key=_when)
    return Reservation(prompt_tokens + answer, answer, capped=answer < answer_tokens)


def cost(unit: BudgetUnit, usage: Usage) -> int:
    """What `usage` costs, in thousandths of `unit`. A turn that used nothing costs nothing."""
    if not (usage.input or usage.cached or usage.output):
        return 0
    weights = WEIGHTS[unit]
    return (
        weights.turn
        + (usage.input - usage.cached) * weights.new
        + usage.cached * weights.cached
        + usage.output * weights.output
    )


def accepted(counted: Usage, worst_case: Usage) -> Usage:
    """The part of what was counted that is charged: nothing below 0, nothing beyond the worst case.

    A replica that counts wrongly must neither credit an owner nor push one over a limit.
    """
    prompt = _within(counted.input, worst_case.input)
    return Usage(
        input=prompt,
        cached=_within(counted.cached, prompt),
        output=_within(counted.output, worst_case.output),
    )


def used(balance: Balance | None, now_ms: int) -> int:
    """What is used of a budget at `now_ms`: it falls evenly, by the whole limit in `refill_ms`."""
    if balance is None:
        return 0
    elapsed_ms = max(0, now_ms - balance.at_ms)
    return max(0, balance.used - balance.limit * elapsed_ms // balance.refill_ms)


def taken(budget: Budget, spent: Spent) -> int:
    """What is used of a budget, or reserved of it by open turns.

    Never more than its limit, unless a larger limit was in force before.
    """
    reserved = sum(
        cost(budget.unit, holding.worst_case)
        for holding in spent.holdings
        if budget.name in holding.budgets
    )
    return used(spent.balances.get(budget.name), spent.now_ms) + reserved


def settle(balances: Mapping[str, Balance], settlement: Settlement) -> dict[str, Balance]:
    """The balances that a settlement changes, as they are after it.

    One that is charged nothing is left alone, or many small steps would round its refill away.
    """
    changed = {}
    for budget in settlement.budgets:
        charge = cost(budget.unit, settlement.usage)
        if charge:
            before = used(balances.get(budget.name), settlement.at_ms)
            changed[budget.name] = Balance(
                before + charge, settlement.at_ms, budget.limit, budget.refill_ms
            )
    return changed


def rebuilt(settlements: Iterable[Settlement]) -> dict[str, Balance]:
    """An owner's balances from the settlements alone, oldest first."""
    balances: dict[str, Balance] = {}
    for settlement in settlements:
        balances |= settle(balances, settlement)
    return balances


def drifts(kept: Mapping[str, Balance], due: Mapping[str, Balance]) -> dict[str, Drift]:
    """Where the balances that are kept are not those that are due, by budget."""
    return {
        name: Drift(kept.get(name), due.get(name))
        for name in sorted(kept.keys() | due.keys())
        if kept.get(name) != due.get(name)
    }


def ledger_moment(last_ms: int | None, now: float) -> int:
    """The time of an owner's ledger: the clock's, but never before the moment of the last look.

    A clock that was put back would else take away what had come back and was reserved anew.
    """
    return max(last_ms or 0, to_ms(now))


def settling_moment(last_ms: int | None, now: float) -> int:
    """When a settlement counts as made: after the owner's last one, whatever the clock says.

    So their order is known from the ledger, and a balance can be computed again from it exactly.
    """
    return ledger_moment((last_ms or 0) + 1, now)


def standing(budget: Budget, spent: Spent) -> Standing:
    """What an owner is shown of a budget."""
    gone = taken(budget, spent)
    full_at_ms = spent.now_ms + _refill_wait_ms(budget, gone) if gone else None
    return Standing(budget, max(0, budget.limit - gone), full_at_ms)


def in_units(milli: int) -> int | float:
    """Thousandths as people read them: a whole number where it is one."""
    return milli / MILLI if milli % MILLI else milli // MILLI


def to_ms(seconds: float) -> int:
    """Seconds of a clock as the ledger's whole milliseconds."""
    return math.floor(seconds * 1000)


def _longest(budget: Budget, left: int, prompt_tokens: int, answer_tokens: int) -> int:
    """The most answer tokens, up to those asked for, that fit into what is left."""
    each = WEIGHTS[budget.unit].output
    if not each:
        return answer_tokens
    return (left - cost(budget.unit, Usage(input=prompt_tokens, output=1))) // each + 1


def _exhausted(budget: Budget, left: int, needed: int, now_ms: int) -> BudgetExhausted:
    resets_at = None
    if needed <= budget.limit:
        resets_at = (now_ms + _refill_wait_ms(budget, needed - left)) / 1000
    remaining = max(0, left)
    return BudgetExhausted(budget.name, budget.unit, budget.limit, remaining, needed, resets_at)


def _refill_wait_ms(budget: Budget, amount: int) -> int:
    """How long it takes until `amount` has come back, rounded up."""
    return -(-amount * budget.refill_ms // budget.limit)


def _when(exhausted: BudgetExhausted) -> float:
    return math.inf if exhausted.resets_at is None else exhausted.resets_at


def _within(count: int, most: int) -> int:
    return max(0, min(count, most))
