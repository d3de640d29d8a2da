"""What the refused were promised, in one process."""

from __future__ import annotations

from collections import defaultdict

from tertulia.core.returns import Returns
from tertulia.core.types import Lane
from tertulia.ports import Clock


class MemoryPromises:
    """The `Promises` port."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._books: defaultdict[tuple[Lane, str], Returns] = defaultdict(Returns)

    async def ask(
        self,
        lane: Lane,
        owner: str,
        *,
        pool: str = "",
        wait_s: float,
        limit_s: float,
        kept_s: float,
        starts_per_s: float,
    ) -> float | None:
        """None to come in, or the seconds to come back after."""
        return self._books[lane, pool].ask(
            owner,
            self._clock.now(),
            wait_s=wait_s,
            limit_s=limit_s,
            kept_s=kept_s,
            starts_per_s=starts_per_s,
        )
