"""What administrators ask before they buy machines: a plan, and how it would go."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class PlanWish:
    """What is asked for, by the planner's own names: numbers, and words such as `large.model`.
    What is not given is as the planner assumes it."""

    values: Mapping[str, float] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under what a plan is tried: so many times its peak, and which of the policies are on."""

    load: float = 1.0
    ladder: bool = True
    paid_first: bool = True
    door: bool = True


@dataclass(frozen=True, slots=True)
class CantPlan:
    """What was asked for makes no sense, or can't be played; `why` is one sentence."""

    why: str


@dataclass(frozen=True, slots=True)
class Busy:
    """As much is being computed for others as may be."""


@dataclass(frozen=True, slots=True)
class Progress:
    """This share of a simulation has been played."""

    share: float


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a simulation."""

    document: Mapping[str, Any]


Scenario = Mapping[str, Any]


class Planning(Protocol):
    """The planner and the simulator, each computed away from whoever asks.

    Promises
    * `plan` and `scenario` answer within a second, or with `Busy`; nonsense is `CantPlan`.
    * `play` tells how far it is and, last, what came of it, or why nothing did: `CantPlan` for one
      that takes too long, `Busy` while another is played in this process. Closing it ends the
      simulation at once, and nothing is left running.
    """

    async def plan(self, wish: PlanWish) -> Mapping[str, Any] | CantPlan | Busy: ...
    async def scenario(
        self, wish: PlanWish, conditions: Conditions
    ) -> Scenario | CantPlan | Busy: ...
    def play(
        self, scenario: Scenario
    ) -> AsyncGenerator[Progress | Played | CantPlan | Busy, None]: ...
