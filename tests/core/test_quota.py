"""What a turn may reserve and what it is charged: whatever is asked, every limit holds exactly."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tertulia.core.quota import (
    MILLI,
    WEIGHTS,
    Reservation,
    Settlement,
    accepted,
    cost,
    drifts,
    in_units,
    ledger_moment,
    rebuilt,
    reserve,
    settle,
    settling_moment,
    standing,
    taken,
    to_ms,
    used,
)
from tertulia.core.types import (
    Balance,
    Budget,
    BudgetExhausted,
    Drift,
    Holding,
    Lane,
    Limits,
    Spent,
    TooManyRunning,
    Usage,
)

NOW_MS = 1_796_000_000_000
UNITS = sorted(WEIGHTS)

tokens = st.integers(0, 100_000)
answers = st.integers(1, 100_000)
usages = st.builds(
    lambda new, cached, output: Usage(new + cached, cached, output), tokens, tokens, tokens
)
budgets = st.builds(
    Budget,
    st.sampled_from("abc"),
    st.sampled_from(UNITS),
    st.integers(1, 10**9),
    st.integers(1, 10**9),
)
plans = st.lists(budgets, max_size=3, unique_by=lambda budget: budget.name).map(tuple)
balances = st.builds(
    Balance,
    st.integers(0, 10**9),
    st.integers(NOW_MS - 10**9, NOW_MS),
    st.integers(1, 10**9),
    st.integers(1, 10**9),
)
holdings = st.builds(
    Holding,
    st.just("m_r"),
    st.sampled_from(Lane),
    st.builds(Usage, tokens, st.just(0), answers),
    st.lists(st.sampled_from("abc"), unique=True).map(tuple),
)
spents = st.builds(
    Spent,
    st.just(NOW_MS),
    st.dictionaries(st.sampled_from("abc"), balances),
    st.lists(holdings, max_size=4).map(tuple),
)
limits = st.builds(
    Limits, plans, st.integers(0, 5), st.sampled_from(Lane), st.none(), st.integers(1, 500)
)
# Where neither places nor the shortest answer are what refuses.
roomy = st.builds(Limits, plans, st.just(9), st.sampled_from(Lane), st.none(), st.integers(1, 9))


@given(spents, limits, tokens, answers)
def test_a_reservation_fits_every_budget_and_is_no_more_than_was_asked(
    spent: Spent, limit: Limits, prompt: int, answer: int
) -> None:
    given_ = reserve(spent, limit, prompt_tokens=prompt, answer_tokens=answer)
    if not isinstance(given_, Reservation):
        return
    assert given_.tokens == prompt + given_.answer_tokens
    assert min(answer, limit.min_answer_tokens) <= given_.answer_tokens <= answer
    assert given_.capped == (given_.answer_tokens < answer)
    assert len(spent.running_beside(limit.lane)) < limit.replies_running
    for budget in limit.budgets:
        worst = cost(budget.unit, Usage(prompt, 0, given_.answer_tokens))
        assert worst == 0 or taken(budget, spent) + worst <= budget.limit


@given(spents, roomy, st.integers(0, 1000), answers)
def test_a_capped_answer_is_the_longest_that_fits(
    spent: Spent, limit: Limits, prompt: int, answer: int
) -> None:
    given_ = reserve(spent, limit, prompt_tokens=prompt, answer_tokens=answer)
    if not isinstance(given_, Reservation) or not given_.capped:
        return
    longer = Usage(prompt, 0, given_.answer_tokens + 1)
    assert any(
        taken(budget, spent) + cost(budget.unit, longer) > budget.limit for budget in limit.budgets
    )


@given(spents, limits, tokens, answers)
def test_a_turn_is_refused_only_where_not_even_the_shortest_answer_fits(
    spent: Spent, limit: Limits, prompt: int, answer: int
) -> None:
    given_ = reserve(spent, limit, prompt_tokens=prompt, answer_tokens=answer)
    if isinstance(given_, TooManyRunning):
        assert len(spent.running_beside(limit.lane)) >= limit.replies_running == given_.limit
    if isinstance(given_, BudgetExhausted):
        (budget,) = [one for one in limit.budgets if one.name == given_.budget]
        shortest = Usage(prompt, 0, min(answer, limit.min_answer_tokens))
        assert given_.needed == cost(budget.unit, shortest) > given_.remaining >= 0
        assert (given_.unit, given_.limit) == (budget.unit, budget.limit)
        assert (given_.resets_at is None) == (given_.needed > given_.limit)


def test_a_turn_passes_a_budget_that_it_takes_nothing_of() -> None:
    """Also where a limit that was made smaller has left less than nothing."""
    budget = Budget("prompts", "prompt_tokens", 1000, 1000)
    spent = Spent(NOW_MS, {"prompts": Balance(5000, NOW_MS, 5000, 5000)}, ())
    limit = Limits((budget,), 1, Lane.PLUS, None, 1)
    assert isinstance(reserve(spent, limit, prompt_tokens=0, answer_tokens=9), Reservation)
    assert isinstance(reserve(spent, limit, prompt_tokens=1, answer_tokens=9), BudgetExhausted)


@given(spents, roomy, st.integers(0, 1000), answers)
def test_at_the_promised_moment_there_is_room_once_what_is_open_has_been_used(
    spent: Spent, limit: Limits, prompt: int, answer: int
) -> None:
    """Also where several budgets are used up: the last of them is named."""
    given_ = reserve(spent, limit, prompt_tokens=prompt, answer_tokens=answer)
    if not isinstance(given_, BudgetExhausted) or given_.resets_at is None:
        return
    settled = {
        budget.name: Balance(taken(budget, spent), NOW_MS, budget.limit, budget.refill_ms)
        for budget in limit.budgets
    }
    later = Spent(round(given_.resets_at * 1000), settled, ())
    again = reserve(later, limit, prompt_tokens=prompt, answer_tokens=answer)
    assert isinstance(again, Reservation)


@given(usages, usages)
def test_what_is_accepted_lies_within_the_worst_case_and_credits_nobody(
    counted: Usage, worst: Usage
) -> None:
    worst = Usage(worst.input, 0, worst.output)
    taken_ = accepted(counted, worst)
    assert 0 <= taken_.cached <= taken_.input <= worst.input
    assert 0 <= taken_.output <= worst.output
    assert accepted(taken_, worst) == taken_
    for unit in UNITS:
        assert 0 <= cost(unit, taken_) <= max(cost(unit, worst), 0)


@pytest.mark.parametrize(
    ("counted", "charged"),
    [
        (Usage(-5, -5, -5), Usage(0, 0, 0)),
        (Usage(10**18, 10**18, 10**18), Usage(100, 100, 50)),
        (Usage(60, 90, 20), Usage(60, 60, 20)),
        (Usage(60, -1, 20), Usage(60, 0, 20)),
        (Usage(), Usage()),
    ],
)
def test_negative_and_absurd_counts_are_clamped(counted: Usage, charged: Usage) -> None:
    assert accepted(counted, Usage(100, 0, 50)) == charged


def test_units_weigh_tokens_by_their_cost() -> None:
    usage = Usage(input=100, cached=40, output=10)
    assert cost("units", usage) == 60_000 + 4_000 + 40_000
    assert cost("tokens", usage) == 110_000
    assert cost("prompt_tokens", usage) == 100_000
    assert cost("turns", usage) == 1000
    assert [cost(unit, Usage()) for unit in UNITS] == [0] * len(UNITS)


@given(balances, st.integers(0, 2 * 10**9), st.integers(0, 10**9))
def test_what_is_used_falls_evenly_to_nothing_and_never_rises(
    balance: Balance, later_ms: int, more_ms: int
) -> None:
    first = used(balance, NOW_MS + later_ms)
    assert 0 <= used(balance, NOW_MS + later_ms + more_ms) <= first <= balance.used
    whole = replace(balance, used=balance.limit)
    assert used(whole, balance.at_ms + balance.refill_ms) == 0
    assert used(balance, balance.at_ms - 1000) == balance.used
    assert used(None, NOW_MS) == 0


def test_a_change_of_plans_credits_nobody_and_takes_no_more_than_one_refill() -> None:
    small = Budget("units", "tokens", 25_000, 10_800_000)
    large = replace(small, limit=250_000)
    # Much was used on the large plan; then a turn ends that was begun on the small one.
    kept = {"units": Balance(200_000, NOW_MS, large.limit, large.refill_ms)}
    kept |= settle(kept, Settlement((small,), Usage(1, 0, 1), NOW_MS))
    assert kept["units"].used == 202_000
    # The other way: what was used on the large plan is back when it would have been there.
    spent = Spent(NOW_MS, {"units": Balance(250_000, NOW_MS, large.limit, large.refill_ms)}, ())
    assert standing(small, spent).remaining == 0
    later = replace(spent, now_ms=NOW_MS + large.refill_ms)
    assert standing(small, later).remaining == small.limit


settlements = st.lists(
    st.builds(Settlement, plans, st.one_of(usages, st.just(Usage())), st.integers(1, 10**6)),
    max_size=12,
)


@given(settlements)
def test_balances_are_rebuilt_from_the_settlements_exactly(made: list[Settlement]) -> None:
    """In whatever steps they came about."""
    at_ms, kept, ledger = NOW_MS, dict[str, Balance](), list[Settlement]()
    for settlement in made:
        at_ms = settling_moment(at_ms, (at_ms + settlement.at_ms) / 1000)
        ledger.append(settlement._replace(at_ms=at_ms))
        kept |= settle(kept, ledger[-1])
    assert rebuilt(ledger) == kept
    assert drifts(kept, rebuilt(ledger)) == {}


@given(budgets, st.lists(st.tuples(usages, st.integers(1, 10**7)), min_size=1, max_size=12))
def test_rounding_takes_less_than_a_part_at_each_settlement(
    budget: Budget, made: list[tuple[Usage, int]]
) -> None:
    """Against exact fractions, as long as the limit is not passed."""
    at_ms, balance, exact = NOW_MS, dict[str, Balance](), Fraction(0)
    for usage, wait_ms in made:
        at_ms += wait_ms
        came_back = Fraction(budget.limit * wait_ms, budget.refill_ms)
        charge = cost(budget.unit, usage)
        assume(max(Fraction(0), exact - came_back) + charge <= budget.limit)
        exact = max(Fraction(0), exact - came_back) + charge
        changed = settle(balance, Settlement((budget,), usage, at_ms))
        if not charge:
            assert changed == {}
            assert exact <= used(balance.get(budget.name), at_ms) <= exact + len(made)
            continue
        balance |= changed
        assert exact <= balance[budget.name].used <= exact + len(made)


def test_a_settlement_is_later_than_the_last_one_whatever_the_clock_says() -> None:
    assert settling_moment(0, 12.3456) == 12_345
    assert settling_moment(20_000, 12.3456) == 20_001
    assert settling_moment(12_345, 12.3456) == 12_346
    assert settling_moment(None, 12.3456) == 12_345


def test_the_ledgers_time_does_not_go_back() -> None:
    assert ledger_moment(None, 12.3456) == ledger_moment(12_000, 12.3456) == 12_345
    assert ledger_moment(20_000, 12.3456) == 20_000


def test_a_drift_names_what_is_wrong_and_what_is_right() -> None:
    right, wrong = Balance(5, 1, 9, 9), Balance(6, 1, 9, 9)
    assert drifts({"a": right, "b": wrong, "c": wrong}, {"a": right, "b": right, "d": right}) == {
        "b": Drift(wrong, right),
        "c": Drift(wrong, None),
        "d": Drift(None, right),
    }


@given(spents, budgets)
def test_a_standing_shows_what_is_left_and_when_all_of_it_is_there(
    spent: Spent, budget: Budget
) -> None:
    seen = standing(budget, spent)
    gone = taken(budget, spent)
    assert seen.remaining == max(0, budget.limit - gone)
    if seen.full_at_ms is None:
        assert gone == 0
    elif gone <= budget.limit:
        kept = Balance(gone, NOW_MS, budget.limit, budget.refill_ms)
        assert used(kept, seen.full_at_ms) == 0 < used(kept, seen.full_at_ms - 1)


def test_an_open_turn_counts_against_the_budgets_that_it_names_alone() -> None:
    budget = Budget("chat", "tokens", 1000 * MILLI, 60_000)
    mine = Holding("m_1", Lane.FREE, Usage(100, 0, 200), ("chat", "other"))
    anothers = Holding("m_2", Lane.BATCH, Usage(100, 0, 200), ("batch",))
    assert taken(budget, Spent(NOW_MS, {}, (mine, anothers))) == 300 * MILLI


def test_a_batch_takes_no_place_of_a_chat_and_a_chat_none_of_a_batch() -> None:
    holding = Holding("m_1", Lane.BATCH, Usage(1, 0, 1), ())
    spent = Spent(NOW_MS, {}, (holding, Holding("m_2", Lane.PLUS, Usage(1, 0, 1), ())))
    for lane in (Lane.PLUS, Lane.FREE, Lane.BATCH):
        one, two = Limits((), 1, lane), Limits((), 2, lane)
        assert reserve(spent, one, prompt_tokens=1, answer_tokens=1) == TooManyRunning(1)
        assert isinstance(reserve(spent, two, prompt_tokens=1, answer_tokens=1), Reservation)
    assert spent.running == ("m_1", "m_2")


def test_thousandths_are_shown_as_whole_numbers_where_they_are() -> None:
    assert [in_units(milli) for milli in (0, 2_251_000, 2_251_100)] == [0, 2251, 2251.1]
    assert to_ms(1.9999) == 1999


# The figures of docs/explanation/limits.md and their like, from the real code.

THREE_HOURS_MS = 10_800_000
FREE = Budget("units_3h", "units", 25_000 * MILLI, THREE_HOURS_MS)
PLUS = Budget("units_3h", "units", 250_000 * MILLI, THREE_HOURS_MS)


def test_a_typical_message_costs_2251_units() -> None:
    assert cost("units", Usage(input=390 + 2_610, cached=2_610, output=400)) == 2_251 * MILLI


def burst(
    budget: Budget, n: int, *, prompt: int, answer: int, shortest: int
) -> tuple[list[Reservation], list[BudgetExhausted]]:
    """What happens to so many turns at one moment, none of which ends meanwhile."""
    limit = Limits((budget,), n, min_answer_tokens=shortest)
    spent = Spent(NOW_MS, {}, ())
    let_in, refused = [], []
    for one in range(n):
        given_ = reserve(spent, limit, prompt_tokens=prompt, answer_tokens=answer)
        if isinstance(given_, Reservation):
            let_in.append(given_)
            worst = Usage(given_.tokens - given_.answer_tokens, 0, given_.answer_tokens)
            held = Holding(f"m_{one}", Lane.FREE, worst, (budget.name,))
            spent = Spent(NOW_MS, {}, (*spent.holdings, held))
        else:
            assert isinstance(given_, BudgetExhausted)
            refused.append(given_)
    return let_in, refused


def test_of_a_burst_of_30_six_are_let_in_and_24_told_to_come_back_after_3_seconds() -> None:
    minute = Budget("tokens_minute", "tokens", 6_000 * MILLI, 60_000)
    let_in, refused = burst(minute, 30, prompt=800, answer=100, shortest=100)
    assert (len(let_in), len(refused)) == (6, 24)
    assert {one.resets_at for one in refused} == {NOW_MS / 1000 + 3.0}


@pytest.mark.parametrize(
    ("budget", "answer", "whole", "cap"),
    [(FREE, 1_000, 3, 250), (FREE, 300, 5, 250), (PLUS, 2_000, 22, 1_250)],
)
def test_of_30_parallel_turns_only_those_pass_that_the_budget_pays_for(
    budget: Budget, answer: int, whole: int, cap: int
) -> None:
    """With answers as long as asked for; else one more is let in with a short one."""
    let_in, _ = burst(budget, 30, prompt=3_000, answer=answer, shortest=answer)
    assert len(let_in) == whole
    let_in, refused = burst(budget, 30, prompt=3_000, answer=answer, shortest=64)
    assert [one.capped for one in let_in] == [False] * whole + [True]
    assert (let_in[-1].answer_tokens, len(refused)) == (cap, 29 - whole)


def test_a_prompt_that_no_full_budget_pays_for_is_refused_without_a_promise() -> None:
    _, (refused,) = burst(FREE, 1, prompt=30_000, answer=1_000, shortest=64)
    assert (refused.needed, refused.limit) == (30_256 * MILLI, 25_000 * MILLI)
    assert refused.resets_at is None
