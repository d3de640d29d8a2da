"""What a turn may reserve: whatever is asked, the limit holds and the arithmetic is exact."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.quota import Reservation, charge, day_of, lane_of, reserve
from tertulia.core.types import BudgetExhausted, Limits, Spent, TooManyRunning, Usage

tokens = st.integers(0, 100_000)
answers = st.integers(1, 100_000)
limits = st.builds(Limits, tokens, st.integers(0, 5), st.integers(1, 500))
running = st.lists(st.just("m_r"), max_size=6).map(tuple)
spents = st.builds(Spent, tokens, tokens, running, st.just(86_400.0))


@given(spents, limits, tokens, answers)
def test_a_reservation_never_passes_the_limit_nor_what_was_asked(
    spent: Spent, limit: Limits, prompt: int, answer: int
) -> None:
    given_ = reserve(spent, limit, prompt_tokens=prompt, answer_tokens=answer)
    if not isinstance(given_, Reservation):
        return
    assert spent.used_today + spent.reserved + given_.tokens <= limit.tokens_per_day
    assert given_.tokens == prompt + given_.answer_tokens
    assert min(answer, limit.min_answer_tokens) <= given_.answer_tokens <= answer
    assert given_.capped == (given_.answer_tokens < answer)
    assert len(spent.running) < limit.replies_running


@given(spents, limits, tokens, answers)
def test_a_turn_is_refused_only_when_not_even_the_shortest_answer_fits(
    spent: Spent, limit: Limits, prompt: int, answer: int
) -> None:
    given_ = reserve(spent, limit, prompt_tokens=prompt, answer_tokens=answer)
    if isinstance(given_, TooManyRunning):
        assert len(spent.running) >= limit.replies_running == given_.limit
    if isinstance(given_, BudgetExhausted):
        assert given_.needed == prompt + min(answer, limit.min_answer_tokens)
        assert given_.needed > given_.remaining >= 0
        assert (given_.limit, given_.resets_at) == (limit.tokens_per_day, spent.day_ends_at)


@given(st.lists(st.tuples(tokens, answers, st.integers(0, 100)), max_size=30), limits)
def test_what_is_settled_and_reserved_together_never_passes_the_limit(
    asked: list[tuple[int, int, int]], limit: Limits
) -> None:
    used, held = 0, list[int]()
    for prompt, answer, share in asked:
        spent = Spent(used, sum(held), ("m_r",) * len(held), 86_400.0)
        given_ = reserve(spent, limit, prompt_tokens=prompt, answer_tokens=answer)
        if isinstance(given_, Reservation):
            held.append(given_.tokens)
        if held and share > 50:
            reserved = held.pop(0)
            used += charge(Usage(input=reserved, output=share), reserved=reserved)
        assert used + sum(held) <= limit.tokens_per_day
        assert len(held) <= limit.replies_running


def test_a_charge_is_input_and_output_but_at_most_the_reservation() -> None:
    assert charge(Usage(input=100, cached=90, output=20), reserved=300) == 120
    assert charge(Usage(input=100, output=250), reserved=300) == 300
    assert charge(Usage(), reserved=0) == 0


@given(st.floats(0, 4e9))
def test_a_moment_lies_in_its_day(now: float) -> None:
    day, ends_at = day_of(now)
    assert day * 86_400 <= now < ends_at == (day + 1) * 86_400


def test_midnight_belongs_to_the_new_day() -> None:
    assert day_of(86_400.0) == (1, 172_800.0)
    assert day_of(86_399.999) == (0, 86_400.0)


def test_plus_waits_in_the_first_lane() -> None:
    assert lane_of("plus") < lane_of("free") == lane_of("batch")
