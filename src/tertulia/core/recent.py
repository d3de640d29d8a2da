"""The last measurements of something, and their percentiles. Time is an argument."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

# What a page can show of: of more, the oldest are forgotten.
MOST: Final = 1000
# Older ones say how it was, not how it is.
SPAN_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of `n` values: half are at most `p50`, and so on. None where there are no values."""

    n: int
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(slots=True)
class Recent:
    """Values of the last five minutes. Invariant: at most `MOST`, in the order of their coming."""

    _values: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=MOST))

    def add(self, value: float, now: float) -> None:
        """One more."""
        self._values.append((now, value))

    def percentiles(self, now: float) -> Percentiles:
        """Of what is not too old."""
        while self._values and self._values[0][0] < now - SPAN_S:
            self._values.popleft()
        ordered = sorted(value for _, value in self._values)
        if not ordered:
            return Percentiles(0)
        p50, p95, p99 = (_nearest_rank(ordered, share) for share in (0.50, 0.95, 0.99))
        return Percentiles(len(ordered), p50, p95, p99)


def _nearest_rank(ordered: Sequence[float], share: float) -> float:
    return ordered[math.ceil(share * len(ordered)) - 1]
