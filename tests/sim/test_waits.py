"""What people are told about their waits comes true, while more ask than can be answered and what
is left of the engines changes."""

from __future__ import annotations

import math
from functools import cache

import pytest

from tertulia.core.types import Lane
from tests.sim.crowd import Crowd, Person, errors, quantile

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SLOTS = 96  # 12 replies a second
FEW_SLOTS = 16  # 2 replies a second
RUSH_S = 300.0
FREE_S = 10.0  # a free turn may wait so long


@cache
def pulses(seed: int) -> tuple[Person, ...]:
    """Every minute far too many come at once; paid turns use 15 to 30 % of the slots, in a wave."""

    def paid(now: float) -> float:
        return 3 + 0.6 * math.sin(2 * math.pi * now / 160)

    def free(now: float) -> float:
        return 18 if now % 60 < 20 else 4

    limits = {Lane.PLUS: 30.0, Lane.FREE: 2 * FREE_S}
    crowd = Crowd(seed, lambda _: SLOTS, {Lane.PLUS: paid, Lane.FREE: free}, limits)
    # Neither those who came to an empty fleet, nor those whose wait saw all others leave.
    return tuple(person for person in crowd.run(180.0) if 30 < person.asked_at < 150)


@cache
def overload(seed: int) -> tuple[Person, ...]:
    """Twice as many free turns as there is room for, all the time, and a quarter of the slots is
    gone for a minute. Who is refused comes back when he is told to."""

    def slots(now: float) -> int:
        return SLOTS * 3 // 4 if 100 <= now < 160 else SLOTS

    def paid(now: float) -> float:
        return 4 + 1.5 * math.sin(2 * math.pi * now / 120)

    limits = {Lane.PLUS: 30.0, Lane.FREE: FREE_S}
    crowd = Crowd(seed, slots, {Lane.PLUS: paid, Lane.FREE: lambda _: 15.0}, limits)
    return tuple(crowd.run(240.0))


@cache
def rush(seed: int) -> tuple[Person, ...]:
    """Six tenths of an engine with priorities are for paid turns, and of free ones three and a half
    times as many come as there is room for."""
    per_s = {Lane.PLUS: lambda _: 1.2, Lane.FREE: lambda _: 2.8}
    limits = {Lane.PLUS: 30.0, Lane.FREE: FREE_S}
    crowd = Crowd(seed, lambda _: FEW_SLOTS, per_s, limits, puts_aside=True)
    # Not those who came back once no others asked.
    return tuple(person for person in crowd.run(RUSH_S) if person.came_at < RUSH_S)


def test_the_guess_of_a_wait_is_near_what_it_is() -> None:
    """Half of them within 15 %, nine tenths within 25 %, of waits of five seconds or more. Of
    shorter ones mere chance is a larger part: those are right within a second and a half."""
    people = [person for seed in (1, 2, 3) for person in pulses(seed) if person.lane is Lane.FREE]
    wrong = errors(people, shortest_s=5.0)
    assert len(wrong) > 1_000
    assert quantile(wrong, 0.5) <= 0.15, quantile(wrong, 0.5)
    assert quantile(wrong, 0.9) <= 0.25, quantile(wrong, 0.9)
    short = sorted(
        abs(person.guess_s - person.waited_s)
        for person in people
        if person.waited_s is not None and person.waited_s < 5.0
    )
    assert quantile(short, 0.9) <= 1.5, quantile(short, 0.9)


def test_whoever_comes_back_when_told_is_let_in() -> None:
    refused = [person for seed in (1, 2) for person in overload(seed) if person.tries > 1]
    let_in = [person for person in refused if person.waited_s is not None]
    assert len(refused) > 1_000
    assert len(let_in) >= 0.9 * len(refused), (len(let_in), len(refused))


def test_at_an_engine_that_puts_turns_aside_most_of_what_is_left_is_promised_and_kept() -> None:
    """Were a free turn taken to last as long as it is aside, half as many would be told to come,
    and fewer of those let in. Of so few slots chance alone takes some promises back."""
    refused = [person for seed in (1, 2) for person in rush(seed) if person.tries > 1]
    let_in = [person for person in refused if person.waited_s is not None]
    assert len(refused) > 300, len(refused)
    assert len(let_in) >= 0.7 * len(refused), (len(let_in), len(refused))


def test_who_was_let_in_seldom_waits_longer_than_he_may() -> None:
    """Only those do who waited already when a quarter of the slots went."""
    waits = sorted(
        person.waited_s
        for person in overload(1)
        if person.lane is Lane.FREE and person.waited_s is not None
    )
    assert quantile(waits, 0.9) <= FREE_S, quantile(waits, 0.9)
    assert quantile(waits, 0.99) <= 1.5 * FREE_S, quantile(waits, 0.99)


def test_paid_turns_wait_for_the_next_reply_that_ends_and_for_nobody() -> None:
    paid = [person for person in overload(1) if person.lane is Lane.PLUS]
    assert all(person.tries == 1 for person in paid)
    waits = sorted(person.waited_s for person in paid if person.waited_s is not None)
    assert len(waits) == len(paid)
    assert quantile(waits, 0.95) <= 0.6, quantile(waits, 0.95)
