"""What this gateway knows of the line: places, waits, and whether a turn still may join it.

It asks the store, at most a few times a second whatever many want to know, and decides nothing:
the rules are in `core.waiting` and `core.returns`. A store that can't be asked leaves it with what
it knew.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tertulia.core.choice import SMALL
from tertulia.core.pools import Pool, pools_of, ranked_share
from tertulia.core.returns import Returns
from tertulia.core.types import Lane, Turn
from tertulia.core.waiting import (
    EMPTY_LANE,
    LaneState,
    LineView,
    Outlook,
    Pace,
    ahead_of,
    outlook,
)
from tertulia.ports import Clock, Line, Promises, Replicas, StoreUnavailable

# How often the line is looked at: followers are told at most once a second, and what is learned of
# its pace needs no more.
_BEAT_S = 1.0
# Between two looks, however many come to follow meanwhile: what they see is as old as this.
_SOONEST_S = 0.25
# A look that is older says nothing of how long the line is.
_OLD_S = 5.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a turn stands, from 1, and how many seconds it will probably wait there."""

    position: int
    wait_s: int


# What those are told to whom nobody can say more: as if one slot were there.
_NOTHING_THERE = (Pool("", frozenset(), 1),)

# A turn's lane, and the model that it waits for if only one will do.
Kind = tuple[Lane, str | None]


@dataclass(slots=True)
class LineWatch:
    """One gateway's view of the line. Invariant: `_asked` are replies that were waiting when they
    were last looked for, each with its owner.

    `_coming` counts turns on their way into the store, `_come` those stored since the last look, by
    lane and the model that they wait for.
    """

    line: Line
    promises: Promises
    replicas: Replicas
    clock: Clock
    view: LineView | None = None
    pace: Pace = field(default_factory=Pace)
    _looked_at: float = -math.inf
    _seen_at: float = -math.inf
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _asked: dict[str, str] = field(default_factory=dict)
    _looked_for: frozenset[str] = frozenset()
    _coming: Counter[Kind] = field(default_factory=Counter)
    _come: Counter[Kind] = field(default_factory=Counter)
    # Used while the promises of all can't be reached.
    _own: defaultdict[tuple[Lane, str], Returns] = field(
        default_factory=lambda: defaultdict(Returns)
    )

    async def run(self) -> None:
        """Looks once a second until cancelled."""
        while True:
            await self._look(_BEAT_S)
            await self.clock.sleep(_BEAT_S)

    async def place(self, turn: Turn) -> Place | None:
        """Where the turn stands, or None: it does not wait, or nobody knows at the moment."""
        self._asked[turn.reply_id] = turn.owner
        is_new = turn.reply_id not in self._looked_for
        await self._look(_SOONEST_S if is_new else _BEAT_S)
        view = self.view
        position = view.places.get(turn.reply_id) if view is not None else None
        if view is None or position is None:
            return None
        pools = self._pools() or _NOTHING_THERE
        ahead = ahead_of(view, turn.lane, {}).part(position - 1)
        told = outlook(view, self.pace, turn.lane, ahead=ahead, pools=pools, awaited=turn.awaited)
        return Place(position, max(1, math.ceil(told.wait_s)))

    async def expected(
        self, lane: Lane, awaited: str | None, *, entering: Kind | None = None
    ) -> Outlook | None:
        """What a turn that joined now would have before it; None: nobody knows at the moment. If it
        is counted as `entering` already, it is not before itself."""
        await self._look(2 * _BEAT_S)  # as a rule `run` has: nobody waits for it here
        return self._newcomer(lane, awaited, Counter() if entering is None else Counter([entering]))

    async def refusal(
        self,
        owner: str,
        lane: Lane,
        limit_s: float,
        awaited: str | None = None,
        *,
        kept_s: float | None = None,
    ) -> float | None:
        """None if a turn of this lane may join the line, for the model `awaited` or for any; else
        the seconds to come back after. Who comes back when he was told may wait for `kept_s`, as
        long as any other if that is not given."""
        told = await self.expected(lane, awaited)
        # Of what is not known, or not there yet, nobody is told that it is full; and where there is
        # a slot he takes nobody's place.
        if told is None or not told.wait_s:
            return None
        asked = {
            "wait_s": told.wait_s,
            "limit_s": limit_s,
            "kept_s": limit_s if kept_s is None else kept_s,
            "starts_per_s": told.starts_per_s,
        }
        pool = self._apart(awaited)
        with self.entering(lane, awaited):
            try:
                return await self.promises.ask(lane, owner, pool=pool, **asked)
            except StoreUnavailable:
                return self._own[lane, pool].ask(owner, self.clock.now(), **asked)

    def lane(self, lane: Lane) -> LaneState:
        """The lane as it was last seen."""
        return self.view.lane(lane) if self.view is not None else EMPTY_LANE

    def newcomer_wait_s(self, lane: Lane) -> float:
        """How long a turn that joined now would wait to begin, if any model will do."""
        told = self._newcomer(lane, None, Counter())
        return told.wait_s if told is not None else 0.0

    def _newcomer(self, lane: Lane, awaited: str | None, itself: Counter[Kind]) -> Outlook | None:
        view, since_s, pools = self.view, self.clock.now() - self._seen_at, self._pools()
        if view is None or since_s > _OLD_S or not pools:
            return None
        ahead = ahead_of(view, lane, self._coming + self._come - itself)
        told = outlook(view, self.pace, lane, ahead=ahead, pools=pools, awaited=awaited)
        # All have come nearer since it was looked at.
        return replace(told, wait_s=max(0.0, told.wait_s - since_s))

    @contextmanager
    def entering(self, lane: Lane, awaited: str | None = None) -> Iterator[None]:
        """Counts a turn that is on its way into the store: a burst must see itself."""
        self._coming[lane, awaited] += 1
        try:
            yield
        finally:
            self._coming[lane, awaited] -= 1

    def joined(self, lane: Lane, awaited: str | None = None) -> None:
        """A turn was stored and waits; the next look will count it."""
        self._come[lane, awaited] += 1

    async def _look(self, old_s: float) -> None:
        """Looks unless somebody did less than `old_s` ago; all who come meanwhile share it."""
        if self.clock.now() - self._looked_at < old_s:
            return
        async with self._looking:
            now = self.clock.now()
            if now - self._looked_at < old_s:
                return
            self._looked_at = now
            come = Counter(self._come)
            asked = dict(self._asked)
            try:
                view = await self.line.look([(owner, reply) for reply, owner in asked.items()])
            except StoreUnavailable:
                return
            self._come -= come  # not before: until now no view had them
            self.view, self._seen_at, self._looked_for = view, now, frozenset(asked)
            pools = self._pools()
            n_slots = sum(pool.slots for pool in pools)
            self.pace = self.pace.after(view, n_slots=n_slots, ranked=ranked_share(pools))
            for reply in asked:
                if reply not in view.places:
                    self._asked.pop(reply, None)

    def _apart(self, awaited: str | None) -> str:
        """The pool whose promises are kept apart, "" for those of all. The small model's are not:
        those who will take any go there, and must not be promised the same places."""
        found = next((pool for pool in self._pools() if awaited in pool.names), None)
        return found.name if found is not None and found.name != SMALL else ""

    def _pools(self) -> tuple[Pool, ...]:
        """The engines that are there."""
        return pools_of(self.replicas.models())
