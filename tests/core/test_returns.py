"""Who is refused is told when to come back, and is let in when he does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tertulia.core import returns
from tertulia.core.returns import AIM, GRACE_S, LONGEST_S, SHORTEST_S, Returns

LIMIT_S = 10.0
KEPT_S = 15.0
PER_S = 2.0


def asked(line: Returns, owner: str, now: float, wait_s: float, **more: float) -> float | None:
    known = {"limit_s": LIMIT_S, "kept_s": KEPT_S, "starts_per_s": PER_S, **more}
    return line.ask(owner, now, wait_s=wait_s, **known)


def test_whoever_need_not_wait_too_long_comes_in() -> None:
    line = Returns()
    assert asked(line, "ana", 0, LIMIT_S) is None
    assert len(line) == 0


def test_the_refused_come_back_one_after_the_other_as_fast_as_turns_begin() -> None:
    line = Returns()
    told = [asked(line, f"u{n}", 0.0, LIMIT_S + 1) for n in range(5)]
    first = LIMIT_S + 1 - AIM * LIMIT_S
    assert told == [pytest.approx(first + (n + 1) / PER_S) for n in range(5)]


def test_who_comes_back_when_told_is_let_in_and_a_newcomer_beside_him_is_not() -> None:
    line = Returns()
    for n in range(40):
        assert asked(line, f"u{n}", 0.0, LIMIT_S + 1) is not None
    due = asked(line, "u0", 0.0, LIMIT_S + 1)
    assert due is not None
    assert asked(line, "new", due, AIM * LIMIT_S) is not None
    assert asked(line, "u0", due, AIM * LIMIT_S) is None
    assert len(line) == 40  # the newcomer has a promise now


def test_who_comes_back_when_told_may_wait_longer_than_a_newcomer() -> None:
    line = Returns()
    due = asked(line, "ana", 0.0, LIMIT_S + 1)
    assert due is not None
    assert asked(line, "new", due, KEPT_S) is not None
    assert asked(line, "ana", due, KEPT_S) is None


def test_asking_again_too_soon_gives_the_same_moment() -> None:
    line = Returns()
    first = asked(line, "ana", 0.0, LIMIT_S + 1)
    assert first is not None
    for n in range(30):
        asked(line, f"u{n}", 0.0, LIMIT_S + 1)
    assert asked(line, "ana", 2.0, LIMIT_S) == pytest.approx(first - 2.0)


def test_who_is_early_still_comes_in_when_the_line_is_short() -> None:
    line = Returns()
    assert asked(line, "ana", 0.0, LIMIT_S + 20) is not None
    assert asked(line, "ana", 1.0, 0.0) is None
    assert len(line) == 0


def test_a_promise_that_the_line_can_not_keep_is_made_anew() -> None:
    line = Returns()
    due = asked(line, "ana", 0.0, LIMIT_S + 1)
    assert due is not None
    again = asked(line, "ana", due, 2 * LIMIT_S)
    assert again is not None
    assert again >= 2 * LIMIT_S - AIM * LIMIT_S
    assert asked(line, "ana", due + again, 0.0) is None


def test_places_that_nobody_takes_are_given_away_and_fewer_are_kept() -> None:
    line = Returns()
    for n in range(200):
        asked(line, f"u{n}", 0.0, LIMIT_S + 1)
    gone = 200 / PER_S + LIMIT_S + GRACE_S + 1
    assert asked(line, "new", gone, 0.0) is None
    assert len(line) == 0
    told = [asked(line, f"v{n}", gone, LIMIT_S + 1) for n in range(2)]
    assert told[0] is not None
    assert told[1] is not None
    assert told[1] - told[0] < 0.5 / PER_S  # most of them will not come either


def test_who_takes_his_place_is_believed_again() -> None:
    line = Returns()
    for n in range(60):
        asked(line, f"u{n}", 0.0, LIMIT_S + 1)
    late = 60 / PER_S + LIMIT_S + GRACE_S + 1
    asked(line, "x", late, 0.0)  # all of them have stayed away
    before = line._share
    due = asked(line, "ana", late, LIMIT_S + 1)
    assert due is not None
    assert asked(line, "ana", late + due, 0.0) is None
    assert line._share > before


def test_what_lies_too_far_ahead_is_not_promised_but_spread() -> None:
    line = Returns()
    told = [asked(line, f"u{n}", 0.0, 10 * LONGEST_S) for n in range(50)]
    assert len(line) == 0
    assert all(one is not None and LONGEST_S <= one < 2 * LONGEST_S for one in told)
    assert len(set(told)) == 50
    assert told == [asked(line, f"u{n}", 5.0, 10 * LONGEST_S) for n in range(50)]


def test_there_is_a_bound_on_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(returns, "MOST", 3)
    line = Returns()
    told = [asked(line, f"u{n}", 0.0, LIMIT_S + 1) for n in range(5)]
    assert len(line) == 3
    assert all(one is not None and one >= LONGEST_S for one in told[3:])


@given(
    st.lists(
        st.tuples(
            st.integers(0, 20), st.floats(0, 3), st.floats(0, 60), st.sampled_from([2.0, 10.0])
        ),
        max_size=60,
    )
)
def test_nobody_is_sent_away_for_less_than_a_second_nor_held_twice(
    asks: list[tuple[int, float, float, float]],
) -> None:
    line, now = Returns(), 0.0
    for n, passes_s, wait_s, limit_s in asks:
        now += passes_s
        told = asked(line, f"u{n}", now, wait_s, limit_s=limit_s)
        assert told is None or SHORTEST_S / 2 <= told <= 2 * LONGEST_S
        dues = list(line._due.values())
        assert dues == sorted(dues)
