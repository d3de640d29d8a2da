"""No way of asking spends more than is said to be the most."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.quota import MILLI, Reservation, Settlement, cost, reserve, settle
from tertulia.core.spending import DAY_MS, most_spent
from tertulia.core.types import Balance, Budget, BudgetUnit, Limits, Spent, Usage

UNITS: tuple[BudgetUnit, ...] = get_args(BudgetUnit)
HOUR_MS = 3_600_000


def budget(unit: BudgetUnit, limit: int, refill_ms: int) -> Budget:
    return Budget(f"{unit}_{refill_ms}", unit, limit * MILLI, refill_ms)


def test_a_bucket_gives_itself_and_what_flows_in() -> None:
    three_hours = budget("units", 25_000, 3 * HOUR_MS)
    assert most_spent([three_hours], "units", 0) == 25_000 * MILLI
    assert most_spent([three_hours], "units", DAY_MS) == 9 * 25_000 * MILLI


def test_the_tightest_bucket_counts() -> None:
    both = [budget("tokens", 30_000, 60_000), budget("tokens", 200_000, DAY_MS)]
    assert most_spent(both, "tokens", 0) == 30_000 * MILLI
    assert most_spent(both, "tokens", DAY_MS) == 400_000 * MILLI


def test_another_unit_bounds_by_what_is_dearest_for_its_price() -> None:
    tokens, units = budget("tokens", 1_000, DAY_MS), budget("units", 1_000, DAY_MS)
    assert most_spent([tokens], "units", 0) == 4_000 * MILLI, "all of it output"
    assert most_spent([units], "tokens", 0) == 10_000 * MILLI, "all of it cached"
    assert most_spent([tokens], "prompt_tokens", 0) == 1_000 * MILLI


def test_what_no_budget_bounds_has_no_bound() -> None:
    turns = budget("turns", 20, 60_000)
    assert most_spent([], "units", DAY_MS) is None
    assert most_spent([turns], "tokens", DAY_MS) is None
    assert most_spent([budget("tokens", 5, 60_000)], "turns", DAY_MS) is None


@pytest.mark.parametrize("unit", UNITS)
def test_no_time_is_less_than_none(unit: BudgetUnit) -> None:
    with pytest.raises(AssertionError):
        most_spent([], unit, -1)


budgets_of_a_plan = st.lists(
    st.builds(
        budget,
        st.sampled_from(UNITS),
        st.integers(1, 5_000),
        st.sampled_from([1_000, 60_000, HOUR_MS]),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda each: each.name,
)
turns_asked = st.lists(
    st.tuples(
        st.integers(0, 800),  # prompt
        st.integers(0, 100),  # percent of it that is cached
        st.integers(1, 800),  # answer
        st.sampled_from([0, 1, 500, 20_000, 600_000]),  # pause before it
    ),
    max_size=60,
)


@given(budgets_of_a_plan, turns_asked, st.sampled_from(UNITS))
def test_whatever_is_asked_for_costs_no_more_than_the_most(
    budgets: list[Budget], turns: list[tuple[int, int, int, int]], unit: BudgetUnit
) -> None:
    limits = Limits(budgets=tuple(budgets), replies_running=2, min_answer_tokens=1)
    balances: dict[str, Balance] = {}
    now_ms, began_ms, spent_so_far = 1, 1, 0
    for prompt, cached, answer, pause_ms in turns:
        now_ms += pause_ms + 1
        spent = Spent(now_ms=now_ms, balances=balances, holdings=())
        made = reserve(spent, limits, prompt_tokens=prompt, answer_tokens=answer)
        if not isinstance(made, Reservation):
            continue
        usage = Usage(prompt, prompt * cached // 100, made.answer_tokens)
        balances = balances | settle(balances, Settlement(tuple(budgets), usage, now_ms))
        spent_so_far += cost(unit, usage)
        most = most_spent(budgets, unit, now_ms - began_ms)
        assert most is None or spent_so_far <= most
