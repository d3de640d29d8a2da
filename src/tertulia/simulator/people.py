"""Who asks: which plan, whose message, how long an answer. Chance is an argument."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tertulia.core.plans import FREE, Plan
from tertulia.core.types import Lane
from tertulia.simulator.scenario import PeopleTable, Scenario

PLUS: Final = "plus"
HEAVY: Final = "heavy"
# The one who alone sends a share of a plan's messages; everybody else counts from 1.
_HEAVY_OWNER: Final = 0
# A golden part of 64 bits: numbers that follow one another are spread evenly by it.
_MIX: Final = 0x9E3779B97F4A7C15


@dataclass(slots=True, eq=False)
class Message:
    """One question on its way. `group` is whose figures it counts in, `counts` whether it does.

    `tries` are the times that it was sent away at the door; `after` is what its owner does once it
    is over, however it ended.
    """

    number: int
    at: float
    group: str
    plan: Plan
    lane: Lane
    owner: int
    is_easy: bool
    prompt_tokens: int
    cached_tokens: int
    answer_tokens: int
    counts: bool
    region: int = 0
    is_short: bool = False
    tries: int = 0
    after: Callable[[], None] | None = None


class Crowd:
    """Makes messages of people as the scenario describes them."""

    def __init__(self, scenario: Scenario, dice: random.Random) -> None:
        self._people: PeopleTable = scenario.people
        self._dice = dice
        self._plans = {name: scenario.plan(name) for name in (FREE, PLUS)}
        self._n_made = 0
        self._paid_first = scenario.policy.paid_first
        # What comes too late to be decided is not counted.
        self._from = scenario.warm_s
        self._until = scenario.seconds - min(scenario.people.patience_s, scenario.seconds / 2)

    def message(self, now: float, *, region: int = 0) -> Message:
        """The next one that anybody asks."""
        people, dice = self._people, self._dice
        name = FREE if dice.random() < people.free_share else PLUS
        owner, group = dice.randrange(people.users) + 1, name
        heavy = people.heavy
        if heavy is not None and heavy.plan == name and dice.random() < heavy.share:
            owner, group = _HEAVY_OWNER, HEAVY
        return self.of(now, name, owner=owner, group=group, region=region)

    def of(
        self, now: float, name: str, *, owner: int, group: str | None = None, region: int = 0
    ) -> Message:
        """The next one of this owner, who is on this plan."""
        people, dice = self._people, self._dice
        plan = self._plans[name]
        self._n_made += 1
        return Message(
            number=self._n_made,
            at=now,
            group=group or name,
            plan=plan,
            lane=plan.lane if self._paid_first else Lane.FREE,
            owner=owner,
            is_easy=dice.random() < people.easy_share,
            prompt_tokens=people.prompt_tokens,
            cached_tokens=people.cached_tokens,
            answer_tokens=self._answer_tokens(),
            counts=self._from <= now < self._until,
            region=region,
        )

    def plan_of(self, owner: int) -> str:
        """The plan of somebody who keeps it, in a closed circle of people."""
        return FREE if spread(owner) < self._people.free_share else PLUS

    def _answer_tokens(self) -> int:
        people = self._people
        if not people.answer_spread:
            return people.answer_tokens
        sigma = people.answer_spread
        # So that the mean is what was asked for.
        middle = math.log(people.answer_tokens) - sigma * sigma / 2
        return max(1, round(self._dice.lognormvariate(middle, sigma)))


def spread(owner: int) -> float:
    """A number in [0, 1) that only the owner decides."""
    return ((owner * _MIX) & (2**64 - 1)) / 2**64
