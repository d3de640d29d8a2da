"""One replica as this process sees it: what runs there, what it owes, and whether it may have more.

It asks nobody; `watch.py` tells it what was heard, `pool.py` what was sent and came back.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tertulia.backends.replicas.fleet import ReplicaAddress
from tertulia.backends.replicas.stream import Connection
from tertulia.core.breaker import Breaker
from tertulia.core.engines import ENGINES, EngineKind
from tertulia.core.fleet import ReplicaSight, SightState
from tertulia.core.ledger import DispatchLedger
from tertulia.core.liveness import SLOW_S, SOONEST_S, Signs, is_forgotten
from tertulia.core.placement import Candidate

# A cold replica has nothing in its caches, and the first batches are its slowest: for so long its
# share of the load grows from the first part to the whole.
_WARM_S = 10.0
_COLD_SHARE = 0.1
# A gap that was measured before says nothing of a replica that has been quiet since.
_RECENT_S = 5.0


@dataclass(slots=True)
class Running:
    """One of our generations there. `heard_at` is its last token, or else when it was sent."""

    connection: Connection
    heard_at: float
    said_at: float | None = None  # its last token


@dataclass(slots=True)
class Replica:
    """Invariant: `running` are exactly our generations whose connection is open.

    `heard_at` is when it last gave a sign of life; none from before `doubted_at` makes it healthy.
    `replaced` is the incarnation that reported under its name before, `has_twin` whether that one
    still does.
    """

    address: ReplicaAddress
    ledger: DispatchLedger = field(default_factory=DispatchLedger)
    breaker: Breaker = field(default_factory=Breaker)
    running: dict[str, Running] = field(default_factory=dict)
    idle: list[Connection] = field(default_factory=list)
    healthy: bool = False
    verified: bool = False
    seen: bool = False
    draining: bool = False
    refused: str = ""
    replaced: str = ""
    has_twin: bool = False
    misses: int = 0
    heard_at: float = -1e9
    doubted_at: float = -1e9
    up_at: float = 0.0
    said_at: float = -1e9
    ejected_until: float = -1e9
    slow_since: float | None = None
    cache_used_share: float | None = None
    cache_hit_share: float | None = None
    generated_tokens: float | None = None
    held: bool = False  # an administrator has set it aside
    tokens_done: float | None = None
    moved_at: float = 0.0  # when `tokens_done` last changed
    aborts: bool | None = None  # by id; None: not known yet
    priorities: bool = False
    trial_at: float = 0.0  # when what it can do is to be tried

    @property
    def engine(self) -> EngineKind:
        return ENGINES[self.address.engine]

    @property
    def usable(self) -> bool:
        return self.healthy and self.verified

    @property
    def room(self) -> int:
        return 0 if self.draining or self.held else max(0, self.address.slots - self.ledger.running)

    def candidate(self, now: float) -> Candidate:
        """As placement sees it."""
        return Candidate(
            name=self.address.name,
            slots=self.address.slots,
            is_ready=self._is_ready(now),
            running=self.ledger.running,
            owed_tokens=self.ledger.owed_tokens,
            prefill_per_s=self.ledger.prefill_per_s,
            gap_s=self.gap_s(now),
            cache_used_share=self.cache_used_share,
            window=self.address.window,
            share=min(1.0, _COLD_SHARE + (1 - _COLD_SHARE) * (now - self.up_at) / _WARM_S),
        )

    def _is_ready(self, now: float) -> bool:
        rests = now < self.ejected_until or not self.breaker.allows(now)
        return self.usable and not self.draining and not self.held and not rests

    def sight(self, now: float) -> ReplicaSight:
        """As people see it."""
        return ReplicaSight(
            name=self.address.name,
            model=self.address.model,
            engine=self.address.engine,
            state=self._state(now),
            slots=self.address.slots,
            running=self.ledger.running,
            owed_tokens=self.ledger.owed_tokens,
            prefill_per_s=self.ledger.prefill_per_s,
            gap_s=self.gap_s(now),
            cache_used_share=self.cache_used_share,
            cache_hit_share=self.cache_hit_share,
            generated_tokens=self.generated_tokens,
            message=self.refused,
        )

    def _state(self, now: float) -> SightState:
        if self.refused:
            return "refused"
        if not self.healthy:
            return "lost" if self.seen else "starting"
        if not self.verified:
            return "starting"
        if self.draining:
            return "draining"
        if self.held:
            return "held"
        return "ready" if self._is_ready(now) else "resting"

    def gap_s(self, now: float) -> float | None:
        """Between two tokens of a reply: as usual, or as long as nothing has come at all."""
        if self.ledger.gap_s is None or now - self.said_at > _RECENT_S:
            return None
        if not any(sequence.said_at is not None for sequence in self.running.values()):
            return self.ledger.gap_s
        silent_s = now - self.said_at
        return max(self.ledger.gap_s, silent_s) if silent_s > SOONEST_S else self.ledger.gap_s

    def signs(self, now: float) -> Signs:
        """How long ago it gave each sign of life."""
        begun = any(sequence.said_at is not None for sequence in self.running.values())
        return Signs(
            silent_s=now - self.said_at if begun else None,
            usual_gap_s=self.ledger.gap_s,
            heard_s=now - self.heard_at,
            idle_s=None if self.tokens_done is None else now - self.moved_at,
        )

    def hears(self, at: float) -> bool:
        """It gave a sign of life at `at`; whether it had been without one."""
        self.misses = 0
        self.heard_at = max(self.heard_at, at)
        if self.healthy or at <= self.doubted_at:
            return False
        if not self.verified:  # new, or lost: not only in doubt
            self.up_at = at
        self.healthy = self.seen = True
        return True

    def forgive(self, seconds: float, now: float) -> None:
        """So long nobody listened: that was no silence of the replica's."""
        self.heard_at = min(now, self.heard_at + seconds)
        self.said_at = min(now, self.said_at + seconds)
        self.moved_at = min(now, self.moved_at + seconds)
        for sequence in self.running.values():
            sequence.heard_at = min(now, sequence.heard_at + seconds)

    def end_forgotten(self, now: float) -> int:
        """Ends the sequences of which nothing has come for too long; how many there were."""
        forgotten = [
            sequence
            for sequence in self.running.values()
            if is_forgotten(now - sequence.heard_at, has_begun=sequence.said_at is not None)
        ]
        for sequence in forgotten:
            sequence.connection.fail("the replica says nothing more of it")
        return len(forgotten)

    def worked(self, tokens_done: float, at: float) -> None:
        """Its own figure of what it has computed so far."""
        if tokens_done != self.tokens_done:
            self.tokens_done, self.moved_at = tokens_done, at

    def said(self, sequence: Running, n_tokens: int, now: float) -> None:
        """A batch of tokens came for one of its sequences."""
        if sequence.said_at is not None and n_tokens:
            self.ledger.said((now - sequence.said_at) / n_tokens)
        sequence.said_at = sequence.heard_at = self.said_at = self.heard_at = now

    def is_slow_for_long(self, now: float, *, is_slow: bool) -> bool:
        """Whether it has been slow at every look for a while."""
        if not is_slow:
            self.slow_since = None
        elif self.slow_since is None:
            self.slow_since = now
        return self.slow_since is not None and now - self.slow_since >= SLOW_S

    def rest(self, until: float) -> None:
        """Gets nothing for a while; then it begins like a cold one, and is measured anew."""
        self.ejected_until = self.up_at = until
        self.slow_since = None
        self.ledger.forget_gap()

    def doubt(self, now: float) -> None:
        """A connection broke: nothing new goes there until it has answered once more."""
        self.doubted_at = now
        self.healthy = False

    def lose(self, why: str, now: float) -> None:
        """Ends everything on it: what runs there goes on elsewhere."""
        self.doubt(now)
        # It may come back as another program: its vocabulary is compared again.
        self.verified = False
        self.draining = False
        self.ledger.restarted()
        for sequence in self.running.values():
            sequence.connection.fail(why)
        for connection in self.idle:
            connection.fail(why)
        self.idle.clear()
