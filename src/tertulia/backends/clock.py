"""The real clock and the real dice: the only place that may touch either.

It never goes back: the wall clock is read once, the monotonic clock carries it on.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from typing import Final

# Crockford's base 32: no I, L, O, U, so that an id can be read aloud.
ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
TIME_CHARS: Final = 10
CHANCE_CHARS: Final = 16
_CHANCE_BITS: Final = 80


class SystemClock:
    """Wall time at start, carried on monotonically: a corrected wall clock moves nothing."""

    def __init__(self) -> None:
        self._wall_at_start = time.time()
        self._start = time.monotonic()

    def now(self) -> float:
        """Seconds since the Unix epoch; never less than before."""
        return self._wall_at_start + (time.monotonic() - self._start)

    async def sleep(self, seconds: float) -> None:
        """Waits; zero or less only lets others run."""
        await asyncio.sleep(max(0.0, seconds))


class SystemIds:
    """Ids that sort by creation time: 48 bits of milliseconds and 80 random bits.

    Within one millisecond the random part grows by one, so a process never makes them out of order.
    """

    def __init__(self, clock: SystemClock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._last_ms = -1
        self._chance = 0

    def __call__(self, prefix: str) -> str:
        """`prefix_` and 26 characters."""
        with self._lock:
            ms = max(int(self._clock.now() * 1000), self._last_ms)
            if ms == self._last_ms:
                self._chance += 1
                if self._chance >> _CHANCE_BITS:  # 2^80 ids in one millisecond: borrow the next
                    ms, self._chance = ms + 1, 0
            else:
                # One bit stays free, so that counting up within the millisecond can't run over.
                self._chance = secrets.randbits(_CHANCE_BITS - 1)
            self._last_ms = ms
            chance = self._chance
        return f"{prefix}_{_base32(ms, TIME_CHARS)}{_base32(chance, CHANCE_CHARS)}"


def _base32(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        digits.append(ALPHABET[number & 31])
        number >>= 5
    return "".join(reversed(digits))
