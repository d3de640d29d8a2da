"""Plays every variant of a scenario and says of each what people and accountants ask about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tertulia.simulator.caching.rows import Rows
from tertulia.simulator.caching.runs import run
from tertulia.simulator.outcome import Outcome
from tertulia.simulator.scenario import Play, Scenario, Variant
from tertulia.simulator.steps import StepsOutcome, play_steps
from tertulia.simulator.world import play


@dataclass(frozen=True, slots=True)
class Told:
    """One variant and how it went: `outcome` of messages, `steps` of a replica, or how `caches` and
    placements compare."""

    variant: Variant
    outcome: Outcome | None
    steps: StepsOutcome | None = None
    caches: Rows | None = None


def tell(play_: Play, heard: Callable[[str], None] = lambda _: None) -> Iterator[Told]:
    """Each variant as it ends; `heard` hears of each part of one that takes long."""
    for variant in play_.variants:
        yield told(variant, heard)


def told(variant: Variant, heard: Callable[[str], None] = lambda _: None) -> Told:
    """How this variant goes."""
    scenario = variant.scenario
    if scenario.caches is not None:
        rows = run(scenario.caches, seed=scenario.seed, heard=heard)
        return Told(variant, None, caches=rows)
    if scenario.steps is not None:
        return Told(variant, None, play_steps(scenario.steps))
    return Told(variant, _engine(scenario)(scenario))


def _engine(scenario: Scenario) -> Callable[[Scenario], Outcome]:
    if scenario.engine == "exact":
        return play
    from tertulia.simulator.fast import play_fast  # only where it is wanted: it compiles

    return play_fast
