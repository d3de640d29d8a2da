"""A replica under virtual time: what its clients see can be reckoned by hand."""

from __future__ import annotations

import pytest

from tertulia.core.costs import StepCost, Work
from tertulia.core.prefix import CacheLimits
from tertulia.core.steps import StepBounds
from tertulia.simulator.replica import Asked, Recording, replay

STEP_S, TOKEN_S = 0.010, 0.001


def machine(decodes: Work, prefill: Work) -> float:
    return STEP_S + TOKEN_S * (decodes.n_tokens + prefill.n_tokens)


def played(*asked: Asked, seconds: float = 10.0, n_slots: int = 4) -> Recording:
    return replay(
        asked,
        machine,
        bounds=StepBounds(n_slots, target_s=0.05, n_batch=256, n_mixed=256),
        limits=CacheLimits(n_blocks=1_000),
        cost=StepCost(STEP_S, TOKEN_S),
        seconds=seconds,
    )


def test_one_request_alone_is_read_and_then_written_a_token_a_step() -> None:
    seen = played(Asked(1.0, 64, 11))
    ((at_s, first_s),) = seen.firsts
    assert at_s == 1.0
    assert first_s == pytest.approx(STEP_S + 64 * TOKEN_S)
    assert seen.gaps_s == [pytest.approx(STEP_S + TOKEN_S)] * 10
    assert (seen.n_tokens, seen.n_open) == (11, 0)
    assert seen.tokens_per_s == pytest.approx(1.1)


def test_a_prompt_that_comes_among_streams_makes_no_gap_longer_than_the_target() -> None:
    streams = [Asked(0.0, 32, 400) for _ in range(3)]
    seen = played(*streams, Asked(2.0, 900, 20))
    assert max(seen.gaps_s) <= 0.06
    assert max(first_s for _, first_s in seen.firsts) > 0.9, "it is read piece by piece"


def test_who_finds_no_slot_waits_for_one() -> None:
    seen = played(*(Asked(0.0, 16, 50) for _ in range(3)), n_slots=1)
    first, second, third = (first_s for _, first_s in seen.firsts)
    assert first < 0.1 < second < third


def test_what_has_not_begun_at_the_end_is_open_and_not_in_time() -> None:
    seen = played(*(Asked(0.0, 16, 2_000) for _ in range(4)), seconds=1.0, n_slots=2)
    assert seen.n_open == 2
    assert seen.within(1.0) == 0.5
    assert seen.seconds == 1.0


def test_nothing_asked_is_nothing_seen() -> None:
    assert played() == Recording(seconds=10.0)
