"""Which models this worker's replies are on, lane by lane; it counts and decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tertulia.core.types import Lane


@dataclass(frozen=True, slots=True)
class RunningReplies:
    """Invariant: `_running` are the replies whose `counted` block runs, by lane and model."""

    _running: Counter[tuple[Lane, str]] = field(default_factory=Counter)

    def before(self) -> Mapping[Lane, Mapping[str, int]]:
        """Of each lane how many of it and of those before it are on each model."""
        found: dict[Lane, Counter[str]] = {lane: Counter() for lane in Lane}
        for (lane, model), n in self._running.items():
            for behind in Lane:
                if lane <= behind:
                    found[behind][model] += n
        return found

    @contextmanager
    def counted(self, lane: Lane, served: str) -> Iterator[None]:
        """Counts a reply of this lane on this model while the block runs."""
        self._running[lane, served] += 1
        try:
            yield
        finally:
            self._running[lane, served] -= 1
