"""What all gateways count together, and the slice that each keeps while their store is away.

Nobody waits for the store longer than `CALL_S`, and nobody is refused because it is away.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import structlog

from tertulia.core.breaker import FIRST_PAUSE_S, Breaker, State
from tertulia.core.slices import slice_of
from tertulia.ports import Clock, Leases, StoreUnavailable

_log = structlog.get_logger(__name__)

# A store that is well answers within a millisecond; a person would notice more than this.
CALL_S: Final = 0.05
# A time-out that comes so late itself shows that we were: then it is asked once more.
_OWN_S: Final = 2 * CALL_S
_ASKED: Final = 2
# Nobody waits for a renewal: it may find a store that only was busy for a moment.
_RENEW_S: Final = 1.0


class Counters:
    """Leases of all gateways. Invariant: what was taken here and is not over is in `own` too, so
    that a slice counts what this gateway let in before.

    `sliced` counts the decisions that were made from a slice.
    """

    def __init__(self, shared: Leases, own: Leases, clock: Clock) -> None:
        self._shared = shared
        self._own = own
        self._clock = clock
        # Only `renew` probes, for which nobody waits: so it may do so as often as it likes.
        self._breaker = Breaker(longest_pause_s=FIRST_PAUSE_S)
        self._failed_at = -math.inf
        self.sliced = 0

    @property
    def is_away(self) -> bool:
        """Whether the store has failed to answer, and has not been found back yet."""
        return self._breaker.state is not State.CLOSED

    async def take(
        self, name: str, lease: str, *, limit: int, lasts_s: float, of_process: bool = False
    ) -> float | None:
        """None: taken, of all or of this gateway's slice. Else the seconds until there is room."""
        take = partial(
            self._shared.take, name, lease, limit=limit, lasts_s=lasts_s, of_process=of_process
        )
        if not self.is_away:
            began = self._clock.now()
            try:
                wait_s = await self._ask(take)
            except (StoreUnavailable, TimeoutError):
                self._failed(began)
            else:
                self._breaker = self._breaker.succeeded()
                if wait_s is None:
                    await self._own.renew([(name, lease)], lasts_s=lasts_s)
                return wait_s
        self.sliced += 1
        wait_s = await self._own.take(name, lease, limit=slice_of(limit), lasts_s=lasts_s)
        if wait_s is not None:
            # The store may have let it in and only answered too late.
            self._shared.free(name, lease)
        return wait_s

    async def renew(self, held: Sequence[tuple[str, str]], *, lasts_s: float) -> None:
        """Holds what is still in use. It is also the probe that finds a store that was away, which
        then knows at once of everything that was let in meanwhile."""
        await self._own.renew(held, lasts_s=lasts_s)
        now = self._clock.now()
        if not self._breaker.allows(now):
            return
        self._breaker = self._breaker.sending(now)
        try:
            async with asyncio.timeout(_RENEW_S):
                await self._shared.renew(held, lasts_s=lasts_s)
        except (StoreUnavailable, TimeoutError):
            self._failed(now)
        else:
            if self.is_away:
                _log.info("counter_store_back")
            self._breaker = self._breaker.succeeded()

    def free(self, name: str, lease: str) -> None:
        """It is over."""
        self._own.free(name, lease)
        self._shared.free(name, lease)

    def forget(self, name: str) -> None:
        """Everything of this name is over."""
        self._own.forget(name)
        self._shared.forget(name)

    async def _ask(self, take: Callable[[], Awaitable[float | None]]) -> float | None:
        """The store's answer; StoreUnavailable or TimeoutError if there is none in time."""
        for _ in range(_ASKED):
            began = self._clock.now()
            try:
                async with asyncio.timeout(CALL_S):
                    return await take()
            except TimeoutError:
                if self._clock.now() - began < _OWN_S:
                    raise
        raise TimeoutError

    def _failed(self, began: float) -> None:
        """A call failed that began then. Those that were under way together fail together: a
        moment of silence is one failure, however many met it."""
        if began < self._failed_at:
            return
        self._failed_at = self._clock.now()
        was_away = self.is_away
        self._breaker = self._breaker.failed(self._failed_at)
        if self.is_away and not was_away:
            _log.error("counter_store_away", effect="each gateway keeps limits by its own slice")
