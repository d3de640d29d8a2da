"""Turns of no conversation in memory: forgotten some time after their end, or when asked."""

from __future__ import annotations

from collections.abc import Sequence

from tertulia.backends.memory.log import MemoryLog
from tertulia.backends.memory.store import MemoryStore
from tertulia.core.deletions import DeletionKind
from tertulia.core.turn import thread_of
from tertulia.core.types import Gone


class MemoryLooseTurns:
    """The `LooseTurns` port. It buries the logs of what it forgets."""

    def __init__(self, store: MemoryStore, log: MemoryLog) -> None:
        self._store = store
        self._log = log

    async def forget(self, *, ended_s: float, limit: int) -> Sequence[Gone]:
        """The oldest that ended so long ago."""
        before = self._store.clock.now() - ended_s
        ended = [
            (turn.finished_at, turn.reply_id)
            for turn in self._store.turns.values()
            if turn.kind == "stateless" and turn.finished_at is not None
        ]
        old = [reply_id for at, reply_id in sorted(ended)[:limit] if at <= before]
        await self._log.bury(old)
        return tuple(map(self._remove, old))

    async def delete(self, owner: str, reply_id: str) -> Gone | None:
        """One that has ended, at once."""
        turn = self._store.turns.get(reply_id)
        if turn is None or turn.owner != owner or turn.kind != "stateless":
            return None
        if not turn.status.is_final:
            return None
        await self._log.bury([reply_id])
        gone = self._remove(reply_id)
        if gone.is_last:
            self._store.order_deletion(owner, gone.thread, DeletionKind.CALLS)
        return gone

    def _remove(self, reply_id: str) -> Gone:
        turn = self._store.turns.pop(reply_id)
        del self._store.turn_keys[turn.owner, turn.key]
        thread = thread_of(turn)
        left = (
            one
            for one in self._store.turns.values()
            if one.owner == turn.owner and one.conversation_id is None
        )
        is_last = all(thread_of(one) != thread for one in left)
        return Gone(turn.owner, reply_id, thread, is_last)
