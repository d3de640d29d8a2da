"""The slice of a limit that one gateway keeps by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.slices import slice_of


@given(st.integers(1, 10**9))
def test_a_slice_lets_somebody_in_and_four_of_them_stay_within_the_limit(limit: int) -> None:
    assert 1 <= slice_of(limit) <= limit
    assert 4 * slice_of(limit) <= max(limit, 4)


def test_a_slice_is_a_quarter() -> None:
    assert [slice_of(limit) for limit in (1, 3, 4, 20, 300)] == [1, 1, 1, 5, 75]


@pytest.mark.parametrize("limit", [0, -1])
def test_no_limit_is_below_one(limit: int) -> None:
    with pytest.raises(AssertionError):
        slice_of(limit)
