"""The same turns in memory, seen as work with leases, and who is being listened to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tertulia.backends.memory.store import MemoryStore
from tertulia.core.quota import lane_of
from tertulia.core.turn import next_status
from tertulia.core.types import Turn


class MemoryQueue:
    """The `Queue` port."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def claim(self, *, lease_s: float, skip: Sequence[str] = ()) -> Turn | None:
        """The first open turn that nobody holds, at its next epoch."""
        now = self._store.clock.now()
        free = [
            turn
            for turn in self._store.open_turns()
            if turn.reply_id not in skip and not _is_held(turn, now)
        ]
        if not free:
            return None
        turn = min(free, key=lambda turn: (lane_of(turn.plan), turn.created_at, turn.reply_id))
        turn = replace(
            turn,
            status=next_status(turn.status, "claim"),
            epoch=turn.epoch + 1,
            lease_until=now + lease_s,
        )
        self._store.put_turn(turn)
        message = self._store.messages.get((turn.owner, turn.reply_id))
        if message is not None:
            self._store.put_message(replace(message, status=turn.status))
        return turn

    async def renew(
        self, held: Sequence[tuple[str, int]], *, lease_s: float
    ) -> frozenset[tuple[str, int]]:
        """Extends leases; returns those that are lost."""
        until = self._store.clock.now() + lease_s
        lost = set()
        for reply_id, epoch in held:
            turn = self._open(reply_id, epoch)
            if turn is None:
                lost.add((reply_id, epoch))
            else:
                self._store.put_turn(replace(turn, lease_until=until))
        return frozenset(lost)

    async def release(self, held: Sequence[tuple[str, int]]) -> None:
        """Ends leases now."""
        now = self._store.clock.now()
        for reply_id, epoch in held:
            turn = self._open(reply_id, epoch)
            if turn is not None:
                self._store.put_turn(replace(turn, lease_until=now))

    async def abandoned(self, grace_s: Mapping[str, float | None]) -> Sequence[Turn]:
        """Open turns that nobody has followed for their plan's grace."""
        now = self._store.clock.now()
        found = []
        for turn in self._store.open_turns():
            grace = grace_s.get(turn.plan)
            if grace is not None and turn.followed_at <= now - grace:
                found.append(turn)
        return _oldest_first(found)

    async def stale(self, *, held_age_s: float, queued_age_s: float) -> Sequence[Turn]:
        """Open turns that nobody has held for long."""
        now = self._store.clock.now()
        return _oldest_first(
            turn
            for turn in self._store.open_turns()
            if (
                turn.created_at <= now - queued_age_s
                if turn.lease_until is None
                else turn.lease_until <= now - held_age_s
            )
        )

    async def restarted(self) -> None:
        """Ends every lease and counts every open turn as followed now."""
        now = self._store.clock.now()
        for turn in list(self._store.open_turns()):
            lease = None if turn.lease_until is None else now
            self._store.put_turn(replace(turn, lease_until=lease, followed_at=now))

    def _open(self, reply_id: str, epoch: int) -> Turn | None:
        turn = self._store.turns.get(reply_id)
        if turn is None or turn.status.is_final or turn.epoch != epoch:
            return None
        return turn


class MemoryPresence:
    """The `Presence` port."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def seen(self, reply_ids: Iterable[str]) -> None:
        """Marks open turns as followed now."""
        now = self._store.clock.now()
        for reply_id in reply_ids:
            if reply_id in self._store.open:
                turn = self._store.turns[reply_id]
                self._store.put_turn(replace(turn, followed_at=now))


def _is_held(turn: Turn, now: float) -> bool:
    return turn.lease_until is not None and turn.lease_until > now


def _oldest_first(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    return tuple(sorted(turns, key=lambda turn: (turn.created_at, turn.reply_id)))
