"""A small fleet under virtual time: the same seed tells the same story, and staying home pays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tertulia.simulator.caching.fleet import Fleet, Span, play
from tertulia.simulator.caching.outcome import Outcome
from tertulia.simulator.caching.people import People
from tertulia.simulator.caching.policies import POLICIES
from tertulia.simulator.caching.talk import Habits

TWO = Fleet(replicas=2, cache_tokens=400_000)
# Small and quick: what is asked here takes half a second to play.
HABITS = Habits(think_s=20.0, long_share=0.0)
SPAN = Span(40.0, 40.0)


def told(policy: str, fleet: Fleet = TWO, *, n: int = 300, seed: int = 1) -> Outcome:
    return play(fleet, People(n, seed, HABITS), policy, seed=seed, span=SPAN)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_tells_the_same_story(policy: str) -> None:
    assert told(policy, n=60) == told(policy, n=60)


def test_another_seed_tells_another() -> None:
    assert told("ours", n=60) != told("ours", n=60, seed=2)


def test_staying_finds_more_than_going_where_it_is_quiet() -> None:
    ours, least, oracle = (told(policy) for policy in ("ours", "least loaded", "oracle"))
    assert ours.hit_share > least.hit_share + 0.05
    assert ours.hit_share > oracle.hit_share - 0.03


def test_both_grains_of_the_cache_find_nearly_the_same() -> None:
    spans, blocks = told("ours"), told("ours", replace(TWO, cache="blocks"))
    # A block of 64 tokens that is not full is not found: about 50 of 2,500 tokens each time.
    assert blocks.hit_share == pytest.approx(spans.hit_share, abs=0.03)
    assert blocks.good_share == pytest.approx(spans.good_share, abs=0.01)


def test_several_routers_know_of_each_other_by_reports() -> None:
    alone = told("least loaded", n=300)
    apart = told("least loaded", replace(TWO, routers=4), n=300)
    assert apart.n_turns == pytest.approx(alone.n_turns, rel=0.1)
    assert apart != alone


def test_a_slow_replica_gets_less_from_ours_and_not_from_chance() -> None:
    slow = replace(TWO, slow={0: 4.0})
    ours, by_chance = told("ours", slow), told("random", slow)
    assert part_of_the_first(ours) < part_of_the_first(by_chance)


def part_of_the_first(outcome: Outcome) -> float:
    return outcome.turns_by_replica[0] / outcome.n_turns


def test_turns_that_nobody_answers_are_not_forgotten() -> None:
    overrun = replace(TWO, slow={0: 400.0, 1: 400.0})
    outcome = told("random", overrun, n=100)
    assert outcome.n_late > 90, "those whose first token came late, and those without one"
    assert outcome.good_share < 0.1


def test_every_turn_went_to_one_of_the_replicas() -> None:
    outcome = told("ours")
    assert sum(outcome.turns_by_replica) == outcome.n_turns == len(outcome.ttfts_s)
    assert outcome.cached_tokens < outcome.prompt_tokens
    assert outcome.imbalance >= 1.0
