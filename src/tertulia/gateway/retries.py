"""Remembers the turns of programs that send no Idempotency-Key, so that their retry is no new turn.

Memory is bounded and short; a retry that comes too late or elsewhere is a new turn.
"""

from __future__ import annotations

from collections import OrderedDict

from tertulia.ports import Clock

# SDKs wait up to 8 s between two tries.
_SECONDS = 10.0
_TURNS = 4_096


class Retries:
    """(credential, body) -> the key its turn was admitted under, and when it was last asked for."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._keys: OrderedDict[tuple[str, str], tuple[str, float]] = OrderedDict()

    def remember(self, credential: str, body_sha: str, key: str) -> None:
        """Notes the key of a turn that was just asked for."""
        self._keys[credential, body_sha] = (key, self._clock.now())
        self._keys.move_to_end((credential, body_sha))
        while len(self._keys) > _TURNS:
            self._keys.popitem(last=False)

    def key_for(self, credential: str, body_sha: str) -> str | None:
        """The key under which the same body was asked for a moment ago, if it was."""
        known = self._keys.get((credential, body_sha))
        if known is None or known[1] < self._clock.now() - _SECONDS:
            return None
        return known[0]
