"""The same turns in memory, seen as work with leases, and who is being listened to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tertulia.backends.memory.store import MemoryStore
from tertulia.backends.transitions import claimed
from tertulia.core.types import Held, Lane, Status, Turn
from tertulia.core.waiting import Claimable, LaneState, LineView, lowest_lane


class MemoryQueue:
    """The `Queue` port."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def claim(
        self, *, lease_s: float, skip: Sequence[str] = (), may: Claimable | None = None
    ) -> Turn | None:
        """The first open turn that nobody holds, at its next epoch."""
        now = self._store.clock.now()
        lowest = lowest_lane(may, self.running()) if may is not None else Lane.BATCH
        free = [
            turn
            for turn in self._store.open_turns()
            if turn.reply_id not in skip
            and not _is_held(turn, now)
            and lowest is not None
            and turn.lane <= lowest
            and not (
                may is not None
                and turn.lease_until is None
                and may.lets_wait(turn.lane, turn.awaited)
            )
        ]
        if not free:
            return None
        turn = min(free, key=self.order)
        if turn.status is Status.QUEUED:
            self._store.begun[turn.lane] += 1
        turn = claimed(turn, now + lease_s)
        self._store.put_turn(turn)
        message = self._store.messages.get((turn.owner, turn.reply_id))
        if message is not None:
            self._store.put_message(message._replace(status=turn.status))
        return turn

    async def renew(self, held: Sequence[Held], *, lease_s: float) -> frozenset[Held]:
        """Extends leases; returns those that are lost."""
        until = self._store.clock.now() + lease_s
        lost = set()
        for claim in held:
            turn = self._open(claim)
            if turn is None:
                lost.add(claim)
            else:
                self._store.put_turn(turn._replace(lease_until=until))
        return frozenset(lost)

    async def release(self, held: Sequence[Held]) -> None:
        """Ends leases now."""
        now = self._store.clock.now()
        for claim in held:
            turn = self._open(claim)
            if turn is not None:
                self._store.put_turn(turn._replace(lease_until=now))

    async def abandoned(self) -> Sequence[Turn]:
        """Open turns that nobody has followed for as long as theirs may be left."""
        now = self._store.clock.now()
        return _oldest_first(
            turn
            for turn in self._store.open_turns()
            if turn.abandon_s is not None and turn.followed_at <= now - turn.abandon_s
        )

    async def stale(self, *, held_age_s: float, queued_age_s: float) -> Sequence[Turn]:
        """Open turns that nobody has held for long."""
        now = self._store.clock.now()
        return _oldest_first(
            turn
            for turn in self._store.open_turns()
            if (
                turn.lane.is_chat and turn.created_at <= now - queued_age_s
                if turn.lease_until is None
                else turn.lease_until <= now - held_age_s
            )
        )

    async def restarted(self) -> None:
        """Ends every lease and counts every open turn as followed now."""
        now = self._store.clock.now()
        for turn in list(self._store.open_turns()):
            lease = None if turn.lease_until is None else now
            self._store.put_turn(turn._replace(lease_until=lease, followed_at=now))

    def order(self, turn: Turn) -> tuple[int, bool, int, float, str]:
        """By what turns are claimed."""
        rank = self._store.ranks[turn.reply_id]
        return turn.lane, turn.lease_until is None, rank, turn.created_at, turn.reply_id

    def running(self) -> Counter[Lane]:
        """How many turns of each lane were claimed and have not ended."""
        return Counter(
            turn.lane for turn in self._store.open_turns() if turn.status is Status.RUNNING
        )

    def _open(self, held: Held) -> Turn | None:
        turn = self._store.turns.get(held.reply_id)
        if turn is None or turn.status.is_final or turn.held != held:
            return None
        return turn


class MemoryLine:
    """The `Line` port."""

    def __init__(self, store: MemoryStore, queue: MemoryQueue) -> None:
        self._store = store
        self._queue = queue

    async def look(self, replies: Iterable[tuple[str, str]]) -> LineView:
        """Each lane's counts, and where these replies stand."""
        store, asked = self._store, frozenset(replies)
        waiting = sorted(
            (turn for turn in store.open_turns() if turn.lease_until is None),
            key=self._queue.order,
        )
        queued, running = Counter(turn.lane for turn in waiting), self._queue.running()
        return LineView(
            store.clock.now(),
            {lane: LaneState(queued[lane], running[lane], store.begun[lane]) for lane in Lane},
            {
                turn.reply_id: place
                for place, turn in enumerate(waiting, 1)
                if (turn.owner, turn.reply_id) in asked
            },
            Counter((turn.lane, turn.awaited) for turn in waiting if turn.awaited is not None),
            Counter(
                turn.model
                for turn in store.open_turns()
                if turn.status is Status.RUNNING and turn.model is not None
            ),
        )


class MemoryPresence:
    """The `Presence` port."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def seen(self, followed: Iterable[tuple[str, str]]) -> None:
        """Marks open turns as followed now."""
        now = self._store.clock.now()
        for owner, reply_id in followed:
            if reply_id in self._store.open and self._store.turns[reply_id].owner == owner:
                turn = self._store.turns[reply_id]
                self._store.put_turn(turn._replace(followed_at=now))


def _is_held(turn: Turn, now: float) -> bool:
    return turn.lease_until is not None and turn.lease_until > now


def _oldest_first(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    return tuple(sorted(turns, key=lambda turn: (turn.created_at, turn.reply_id)))
