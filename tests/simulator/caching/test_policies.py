"""The policies that the service's own is compared with do as they are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from tertulia.core.fleet import Home, Wanted
from tertulia.core.placement import Candidate, by_rendezvous
from tertulia.simulator.caching.policies import POLICIES, Choice, Ring

FOUR = [Candidate(f"r{number}", 32, prefill_per_s=5_000.0) for number in range(4)]


def choice(conversation: str = "c1", **more: object) -> Choice:
    wanted = Wanted("q1", "model", conversation, 1_000)
    return replace(Choice(wanted, None, FOUR, 0.5, lambda _: 0), **more)  # type: ignore[arg-type]  # a test's shorthand


def knowing(**tokens: int) -> Callable[[str], int]:
    return lambda name: tokens.get(name, 0)


def busy(*running: int) -> list[Candidate]:
    return [replace(c, running=n) for c, n in zip(FOUR, running, strict=True)]


def test_ours_stays_at_home_and_others_do_as_they_are_called() -> None:
    asked = choice(home=Home("r3", 900), candidates=busy(2, 1, 2, 3))
    first = by_rendezvous("c1", FOUR)[0].name
    chosen = {name: POLICIES[name]()(asked) for name in POLICIES}
    assert chosen["ours"] == "r3"
    assert chosen["rendezvous"] == first
    assert chosen["least loaded"] == "r1"
    assert chosen["random"] == "r2"


def test_the_oracle_goes_to_the_longest_prefix_whatever_runs_there() -> None:
    asked = choice(candidates=busy(0, 30, 0, 0), known=knowing(r0=100, r1=900), shared_tokens=100)
    assert POLICIES["oracle"]()(asked) == "r1"


def test_what_all_begin_with_does_not_draw_everybody_to_one_replica() -> None:
    asked = choice(candidates=busy(1, 0, 1, 1), known=knowing(r0=100), shared_tokens=100)
    assert POLICIES["oracle"]()(asked) == "r1"


def test_the_quickest_weighs_what_is_owed_against_what_is_known() -> None:
    owing = [replace(FOUR[0], owed_tokens=800), *FOUR[1:]]
    quickest = POLICIES["quickest"]()
    assert quickest(choice(candidates=owing, known=knowing(r0=900))) == "r0"
    assert quickest(choice(candidates=owing, known=knowing(r0=700))) == "r1"


@pytest.mark.parametrize("bound", [1.05, 1.25, 2.0])
def test_nobody_carries_more_than_the_bound_on_the_ring(bound: float) -> None:
    ring, running = Ring(bound), [0] * 4
    for number in range(200):
        name = ring(choice(f"c{number}", candidates=busy(*running)))
        running[int(name[1:])] += 1
        assert max(running) <= -(-bound * sum(running) // 4)


def test_a_ring_without_a_bound_gives_a_conversation_one_place_for_ever() -> None:
    ring = Ring()
    homes = {f"c{n}": ring(choice(f"c{n}")) for n in range(300)}
    assert all(ring(choice(c, candidates=busy(9, 9, 9, 0))) == home for c, home in homes.items())
    assert min(Counter(homes.values()).values()) > 30
    left = {c: Ring()(choice(c, candidates=FOUR[:3])) for c in homes}
    assert all(left[c] == home for c, home in homes.items() if home != "r3")
