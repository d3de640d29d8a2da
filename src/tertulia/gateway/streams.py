"""The streams open at this gateway: each has a reply, a seat among its user's at all gateways, and
a caller by whose leave it is listened to.

Invariant: every held seat is of a stream that runs in `EventStream`, of a call that waits for a
whole reply, or of a file that is being read, and that gives it back when it ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tertulia.gateway.caller import Caller
from tertulia.gateway.counters import Counters
from tertulia.ports import ApiKeys, Clock, Presence, Sessions, StoreUnavailable

# Followed replies are marked this often; the grace before a reply is abandoned is 30 times that.
_BEAT_S = 1.0
# Two renewals in a row may fail. What a gateway held that was killed is held no longer than this,
# and makes room before for a reader who needs it.
_SEAT_S = 15.0
_RENEW_BEATS = 5
# A credential that died (logout, disabled account) is noticed after this, and ends its streams when
# they next look around, which is once a second.
_RECHECK_S = 2.0
# So many looks in a row may the store leave unanswered; then nobody is trusted any more. A failover
# takes two or three.
_UNANSWERED = 4


@dataclass(frozen=True, slots=True)
class Seat:
    """One of the streams that an owner may have open."""

    owner: str
    lease: str

    @property
    def held(self) -> tuple[str, str]:
        """The lease as `Counters` know it."""
        return f"streams:{self.owner}", self.lease


class OpenStreams:
    """Open streams and their seats. `leaving` says that this gateway takes no new turns; `draining`
    also asks every stream to end at its next event border."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._seats: set[Seat] = set()
        self._by_reply: Counter[tuple[str, str]] = Counter()
        self._by_session: Counter[str] = Counter()
        self._by_key: Counter[str] = Counter()
        self._refused: frozenset[str] = frozenset()
        self._n_unanswered = 0
        self.leaving = False
        self.draining = False

    def __len__(self) -> int:
        return len(self._seats)

    async def take(self, seat: Seat, *, limit: int) -> bool:
        """Whether the owner has room for one more of `limit`. A seat on which nothing runs within
        seconds is gone."""
        wait_s = await self._counters.take(
            *seat.held, limit=limit, lasts_s=_SEAT_S, of_process=True
        )
        return wait_s is None

    def give_back(self, seat: Seat) -> None:
        """A seat that was taken and on which nothing ever ran."""
        self._counters.free(*seat.held)

    @contextmanager
    def running(self, seat: Seat, caller: Caller, reply_id: str | None = None) -> Iterator[None]:
        """A stream of this reply, or of something that is none, runs on this seat by the caller's
        leave until the block ends; then the seat is free."""
        self._opened(seat, reply_id)
        self.listens(caller)
        try:
            yield
        finally:
            self._closed(seat, reply_id)
            self.left(caller)

    def _opened(self, seat: Seat, reply_id: str | None) -> None:
        assert seat not in self._seats, "a seat is for one stream"
        self._seats.add(seat)
        if reply_id is not None:
            self._by_reply[seat.owner, reply_id] += 1

    def _closed(self, seat: Seat, reply_id: str | None) -> None:
        self._seats.remove(seat)
        self._counters.free(*seat.held)
        if reply_id is None:
            return
        self._by_reply[seat.owner, reply_id] -= 1
        if not self._by_reply[seat.owner, reply_id]:
            del self._by_reply[seat.owner, reply_id]

    def listens(self, caller: Caller) -> None:
        """A stream was opened by this caller's leave, which `recheck` looks at from now on."""
        self._of_kind(caller)[caller.credential] += 1

    def left(self, caller: Caller) -> None:
        credentials = self._of_kind(caller)
        credentials[caller.credential] -= 1
        if not credentials[caller.credential]:
            del credentials[caller.credential]

    def may_listen(self, caller: Caller) -> bool:
        """Whether the caller's credential counted at the last look, which was not long ago."""
        return not self.is_refused(caller) and self._n_unanswered <= _UNANSWERED

    def is_refused(self, caller: Caller) -> bool:
        """Whether the store said that the caller's credential has died."""
        return caller.credential in self._refused

    async def recheck(self, sessions: Sessions, api_keys: ApiKeys, clock: Clock) -> None:
        """Looks every two seconds whose credentials have died, until cancelled: in one question for
        all, as a stream outlives the request that it began with."""
        while True:
            tokens, keys = list(self._by_session), list(self._by_key)
            try:
                alive = await sessions.alive(tokens) if tokens else frozenset()
                alive |= await api_keys.alive(keys) if keys else frozenset()
            except StoreUnavailable:
                self._n_unanswered += 1  # what was known is trusted for a while
            else:
                self._refused = frozenset((*tokens, *keys)) - alive
                self._n_unanswered = 0
            await clock.sleep(_RECHECK_S)

    def _of_kind(self, caller: Caller) -> Counter[str]:
        return self._by_key if caller.session is None else self._by_session

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

    async def hold(self, clock: Clock) -> None:
        """Renews every seat before it ends, until cancelled; says each second that this gateway
        lives, and looks for a store that is away. Not one loop with `beat`: neither waits for the
        other's store."""
        beats = 0
        while True:
            await clock.sleep(_BEAT_S)
            beats += 1
            is_due = beats % _RENEW_BEATS == 0 or self._counters.is_away
            held = [seat.held for seat in self._seats] if is_due else []
            await self._counters.renew(held, lasts_s=_SEAT_S)
