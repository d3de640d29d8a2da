"""What a fleet costs in an hour, and what a million tokens cost at that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.money import Prices, per_hour, per_million


def test_an_hour_is_every_accelerator_of_every_replica_and_the_people() -> None:
    prices = Prices(3.0, {"large-70b": 4}, team_per_year=876_000)
    assert per_hour(prices, ["large-70b", "large-70b", "small-8b"]) == pytest.approx(27 + 100)


def test_without_replicas_the_people_are_paid_all_the_same() -> None:
    assert per_hour(Prices(3.0, team_per_year=8_760), []) == pytest.approx(1.0)


def test_a_million_tokens_is_the_published_designs_own_price() -> None:
    # Four accelerators at 3 dollars that write 3,333 tokens a second: a dollar for a million.
    assert per_million(12.0, 10_000 / 3) == pytest.approx(1.0)


def test_tokens_that_nobody_wrote_have_no_price() -> None:
    assert per_million(12.0, 0.0) is None


@given(st.floats(0.01, 1e6), st.floats(0.01, 1e6))
def test_twice_as_many_tokens_cost_half_as_much_each(cost: float, tokens_per_s: float) -> None:
    once, twice = per_million(cost, tokens_per_s), per_million(cost, 2 * tokens_per_s)
    assert once is not None
    assert twice == pytest.approx(once / 2)
