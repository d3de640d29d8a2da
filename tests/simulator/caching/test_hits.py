"""The table that fleets are planned with comes out as published, and what spilling costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tertulia.simulator.caching.hits import Counted, hit_share, mean_hit_share


@pytest.mark.parametrize(
    ("cache_tokens", "by_chance", "by_conversation"),
    [
        (500_000, 0.453715, 0.676119),
        (1_000_000, 0.480359, 0.840311),
        (2_000_000, 0.519720, 0.954133),
        (8_000_000, 0.587095, 0.958042),
    ],
)
def test_the_published_program_says_the_same(
    cache_tokens: int, by_chance: float, by_conversation: float
) -> None:
    counted = Counted(cache_tokens=cache_tokens)
    assert hit_share(replace(counted, where="random")) == pytest.approx(by_chance, abs=1e-6)
    assert hit_share(counted) == pytest.approx(by_conversation, abs=1e-6)


@pytest.mark.parametrize(("cache_tokens", "left"), [(1_000_000, 0.766), (8_000_000, 0.901)])
def test_a_tenth_that_goes_elsewhere_costs_as_much_as_was_worked_out(
    cache_tokens: int, left: float
) -> None:
    counted = Counted(cache_tokens=cache_tokens, spill_share=0.1)
    share, deviation = mean_hit_share(counted, (1, 2, 3))
    assert share == pytest.approx(left, abs=0.01)
    assert deviation < 0.01


def test_a_home_that_moves_with_its_conversation_loses_less_than_one_that_stays() -> None:
    none = Counted(cache_tokens=2_000_000)
    stays = replace(none, spill_share=0.1)
    moves = replace(stays, moves_home=True)
    assert hit_share(stays) < hit_share(moves) < hit_share(none)


def test_ours_is_as_good_as_an_even_deal_but_for_the_chance_of_names() -> None:
    even = Counted(cache_tokens=2_000_000)
    assert hit_share(replace(even, where="ours")) > hit_share(even) - 0.03
