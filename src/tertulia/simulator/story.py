"""Plays every variant of a scenario and says of each what people and accountants ask about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tertulia.simulator.outcome import Outcome
from tertulia.simulator.scenario import Play, Scenario, Variant
from tertulia.simulator.steps import StepsOutcome, play_steps
from tertulia.simulator.world import play


@dataclass(frozen=True, slots=True)
class Told:
    """One variant and how it went: `outcome` of messages, or `steps` of a replica."""

    variant: Variant
    outcome: Outcome | None
    steps: StepsOutcome | None = None


def tell(play_: Play) -> Iterator[Told]:
    """Each variant as it ends."""
    for variant in play_.variants:
        yield told(variant)


def told(variant: Variant) -> Told:
    """How this variant goes."""
    scenario = variant.scenario
    if scenario.steps is not None:
        return Told(variant, None, play_steps(scenario.steps))
    return Told(variant, _engine(scenario)(scenario))


def _engine(scenario: Scenario) -> Callable[[Scenario], Outcome]:
    if scenario.engine == "exact":
        return play
    from tertulia.simulator.fast import play_fast  # only where it is wanted: it compiles

    return play_fast
