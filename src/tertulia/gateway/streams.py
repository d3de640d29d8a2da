"""The streams open at this gateway: how many a user has, which replies are listened to.

Invariant: every counted stream is running in `EventStream`, which counts it out when it ends.
"""

from __future__ import annotations

from collections import Counter

from tertulia.ports import Clock, Presence, StoreUnavailable

# Followed replies are marked this often; the grace before a reply is abandoned is 30 times that.
_BEAT_S = 1.0


class OpenStreams:
    """Counts open streams. `draining` asks every stream to end at its next event border."""

    def __init__(self) -> None:
        self._by_owner: Counter[str] = Counter()
        self._by_reply: Counter[str] = Counter()
        self.draining = False

    def __len__(self) -> int:
        return self._by_owner.total()

    def count(self, owner: str) -> int:
        """How many streams this owner has open here."""
        return self._by_owner[owner]

    def opened(self, owner: str, reply_id: str) -> None:
        self._by_owner[owner] += 1
        self._by_reply[reply_id] += 1

    def closed(self, owner: str, reply_id: str) -> None:
        for counter, key in ((self._by_owner, owner), (self._by_reply, reply_id)):
            counter[key] -= 1
            if not counter[key]:
                del counter[key]

    async def beat(self, presence: Presence, clock: Clock) -> None:
        """Marks every followed reply once a second, in one statement, until cancelled."""
        while True:
            await clock.sleep(_BEAT_S)
            if not self._by_reply:
                continue
            try:
                await presence.seen(list(self._by_reply))
            except StoreUnavailable:
                continue  # the grace is many beats long
