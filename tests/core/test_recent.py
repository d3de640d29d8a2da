"""The last measurements: bounded, no older than they may be, and ranked as by sorting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tertulia.core.recent import MOST, SPAN_S, Percentiles, Recent


def test_nothing_has_no_percentiles() -> None:
    assert Recent().percentiles(0.0) == Percentiles(0)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=200))
def test_so_many_values_are_at_most_a_percentile(values: list[float]) -> None:
    recent = Recent()
    for value in values:
        recent.add(value, 0.0)
    found = recent.percentiles(0.0)
    assert found.n == len(values)
    for share, limit in ((0.50, found.p50), (0.95, found.p95), (0.99, found.p99)):
        assert limit is not None
        assert limit in values
        assert sum(value <= limit for value in values) >= share * len(values)
        assert sum(value < limit for value in values) < share * len(values)


def test_what_is_too_old_counts_no_more() -> None:
    recent = Recent()
    recent.add(9.0, 0.0)
    recent.add(1.0, 10.0)
    assert recent.percentiles(SPAN_S).p99 == 9.0
    assert recent.percentiles(SPAN_S + 1).p99 == 1.0
    assert recent.percentiles(2 * SPAN_S).n == 0


def test_of_more_than_it_keeps_the_newest_are_kept() -> None:
    recent = Recent()
    for number in range(MOST + 10):
        recent.add(float(number), 0.0)
    found = recent.percentiles(0.0)
    assert (found.n, found.p50) == (MOST, float(10 + MOST // 2 - 1))
