"""Turns of no conversation in memory: forgotten some time after their end, or when asked."""

from __future__ import annotations

from collections.abc import Sequence

from tertulia.backends.memory.log import MemoryLog
from tertulia.backends.memory.store import MemoryStore
from tertulia.core.types import Turn


class MemoryLooseTurns:
    """The `LooseTurns` port. It buries the logs of what it forgets."""

    def __init__(self, store: MemoryStore, log: MemoryLog) -> None:
        self._store = store
        self._log = log

    async def forget(self, *, ended_s: float, limit: int) -> Sequence[Turn]:
        """The oldest that ended so long ago, as they were."""
        before = self._store.clock.now() - ended_s
        ended = [
            (turn.finished_at, turn.reply_id)
            for turn in self._store.turns.values()
            if turn.kind == "stateless" and turn.finished_at is not None
        ]
        old = [reply_id for at, reply_id in sorted(ended)[:limit] if at <= before]
        return await self._remove(old)

    async def delete(self, owner: str, reply_id: str) -> Turn | None:
        """One that has ended, at once."""
        turn = self._store.turns.get(reply_id)
        if turn is None or turn.owner != owner or turn.kind != "stateless":
            return None
        if not turn.status.is_final:
            return None
        await self._remove([reply_id])
        return turn

    async def _remove(self, reply_ids: Sequence[str]) -> Sequence[Turn]:
        await self._log.bury(reply_ids)
        gone = tuple(self._store.turns.pop(reply_id) for reply_id in reply_ids)
        for turn in gone:
            del self._store.turn_keys[turn.owner, turn.key]
        return gone
