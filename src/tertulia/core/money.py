"""What a running fleet costs, and what a million tokens of its answers cost at that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

_HOURS_A_YEAR: Final = 365 * 24
_SECONDS_AN_HOUR: Final = 3_600
_MILLION: Final = 1e6


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars. `accelerators` are those of one replica, by its model's name; one if it has none.
    `target` is for a million tokens of answers; None is no target."""

    accelerator_per_hour: float
    accelerators: Mapping[str, int] = field(default_factory=dict)
    team_per_year: float = 0.0
    target: float | None = None


def per_hour(prices: Prices, models: Iterable[str]) -> float:
    """Replicas of these models, one for each time it is named, and the people who run them."""
    n_accelerators = sum(prices.accelerators.get(model, 1) for model in models)
    team = prices.team_per_year / _HOURS_A_YEAR
    return n_accelerators * prices.accelerator_per_hour + team


def per_million(cost_per_hour: float, tokens_per_s: float) -> float | None:
    """A million tokens, at so many a second; None while there are none: they have no price."""
    if tokens_per_s <= 0:
        return None
    return cost_per_hour * _MILLION / (tokens_per_s * _SECONDS_AN_HOUR)
