"""How often the checks have flagged something, by stage and category: counts, never a text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, Literal

from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

Stage = Literal["input", "output"]

# Categories are words of the checks' rules; whatever invents more is counted together.
_CATEGORIES: Final = 100
OTHER: Final = "other"


class Flags:
    """The counts of this process since it started."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Stage, str]] = Counter()

    def add(self, stage: Stage, category: str) -> None:
        """A message, or a sentence of a reply, was flagged and is not shown."""
        key = (stage, category)
        if key not in self._counts and len(self._counts) >= _CATEGORIES:
            key = (stage, OTHER)
        self._counts[key] += 1

    @property
    def counts(self) -> Mapping[tuple[Stage, str], int]:
        """How often, by stage and category."""
        return dict(self._counts)


class FlagFigures(Collector):
    """The counts as Prometheus sees them, to be added to a role's own figures."""

    def __init__(self, flags: Flags) -> None:
        self._flags = flags

    def collect(self) -> Iterator[Metric]:
        """One counter."""
        flagged = CounterMetricFamily(
            "tertulia_flagged",
            "Messages, and sentences of replies, that the checks have flagged.",
            labels=["stage", "category"],
        )
        for (stage, category), n_flagged in self._flags.counts.items():
            flagged.add_metric([stage, category], n_flagged)
        yield flagged
