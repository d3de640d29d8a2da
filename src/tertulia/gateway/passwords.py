"""Hashes and checks passwords with argon2id, in threads and few at a time: each try takes memory.

It must never let a caller see by time or text whether a name exists.
"""

from __future__ import annotations

import anyio
import anyio.to_thread
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from tertulia.gateway.problems import Problem

# OWASP's second set for argon2id: about 20 ms and 19 MiB a try on one core.
_HASHER = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)
# Two tries at once leave the cores to the streams; past so many waiting the answer is "busy".
_AT_ONCE = 2
_WAITING = 32
# What an unknown name is checked against: the same work, and nothing is equal to it.
_NOBODY = _HASHER.hash("nobody has this password")


class Passwords:
    """A small queue in front of the hashing threads."""

    def __init__(self) -> None:
        self._threads = anyio.CapacityLimiter(_AT_ONCE)
        self._inside = 0

    async def hash(self, password: str) -> str:
        """The stored form of a new password."""
        return await self._run(password, None) or ""

    async def matches(self, stored: str | None, password: str) -> bool:
        """Whether `password` is the one behind `stored`; the same work when there is none."""
        found = await self._run(password, stored or _NOBODY)
        return stored is not None and found is not None

    async def _run(self, password: str, stored: str | None) -> str | None:
        if self._inside >= _AT_ONCE + _WAITING:
            sentence = "Too many people are signing in at once; try again in a moment."
            raise Problem("busy", sentence, retry_after_s=2)
        self._inside += 1
        try:
            return await anyio.to_thread.run_sync(_work, password, stored, limiter=self._threads)
        finally:
            self._inside -= 1


def _work(password: str, stored: str | None) -> str | None:
    if stored is None:
        return _HASHER.hash(password)
    try:
        _HASHER.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return None
    return stored
