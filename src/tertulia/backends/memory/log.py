"""Logs of replies in memory, apart from the turns: a fleet keeps them in another system.

A log can be lost on purpose (`lose`), and all of them can go back to an earlier copy
(`fail_over`), as that other system may lose them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tertulia.backends.bell import Sleepers
from tertulia.backends.gaps import going_on, is_gapless
from tertulia.backends.memory.store import MemoryStore
from tertulia.backends.transitions import BURIED, BURIED_S
from tertulia.core.types import Append, Entry, Fenced, LogView


@dataclass(slots=True)
class _Reply:
    fence: int
    attempt: int
    origin: int
    entries: list[Entry] = field(default_factory=list)
    buried_at: float | None = None


class MemoryLog:
    """The `Log` port. It looks at the store only to learn when a turn finished."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._replies: dict[str, _Reply] = {}
        self._origin = 1  # which system this is: a log of another one is in doubt
        self._sleepers = Sleepers()

    async def fence(self, reply_id: str, epoch: int, attempt: int) -> Fenced | None:
        """Takes the log for `epoch`, or None if a later one has it."""
        reply = self._replies.get(reply_id)
        if reply is None:
            attempt = attempt if epoch == 1 else attempt + 1
            reply = self._replies[reply_id] = _Reply(epoch, attempt, self._origin)
            self._sleepers.wake(reply_id)
        elif epoch < reply.fence:
            return None
        elif attempt > reply.attempt or self._in_doubt(reply):
            self.restart(reply_id, fence=epoch, attempt=max(attempt, reply.attempt) + 1)
        reply.fence = epoch
        return Fenced(reply.attempt, tuple(reply.entries))

    async def append(
        self, reply_id: str, epoch: int, attempt: int, entries: Sequence[Entry]
    ) -> Append:
        """All entries or none, only for the holder of the fence and without a gap."""
        reply = self._replies.get(reply_id)
        if reply is None:
            return Append.MISSING
        if reply.fence > epoch:
            return Append.STALE
        if self._in_doubt(reply):
            return Append.MISSING
        if reply.fence != epoch or reply.attempt != attempt:
            return Append.STALE
        answer = going_on(reply.entries, entries)
        if answer is None:
            reply.entries.extend(entries)
            self._sleepers.wake(reply_id)
        return answer or Append.DONE

    async def reseed(
        self, reply_id: str, epoch: int, attempt: int, entries: Sequence[Entry]
    ) -> Append:
        """Writes a log again that was lost, or that has lost its end."""
        reply = self._replies.get(reply_id)
        if not is_gapless(entries, 1):
            return Append.STALE
        if reply is not None:
            if reply.fence > epoch or reply.attempt > attempt:
                return Append.STALE
            is_ours = reply.fence == epoch and reply.attempt == attempt
            if not self._in_doubt(reply) and not (is_ours and len(reply.entries) <= len(entries)):
                return Append.STALE
        self._replies[reply_id] = _Reply(epoch, attempt, self._origin, list(entries))
        self._sleepers.wake(reply_id)
        return Append.DONE

    async def read(self, reply_id: str, after: int) -> LogView | None:
        """What is there now."""
        reply = self._replies.get(reply_id)
        if reply is None or reply.buried_at is not None:
            return None
        more = tuple(reply.entries[max(0, after) :])
        return LogView(reply.attempt, len(reply.entries), more, self._in_doubt(reply))

    async def wait(self, reply_id: str, attempt: int, after: int, *, timeout_s: float) -> None:
        """Returns when there is something else than (`attempt`, `after`)."""
        reply = self._replies.get(reply_id)
        if reply is None or reply.buried_at is not None:
            differs = after > 0
        else:
            differs = reply.attempt != attempt or len(reply.entries) != after
        if not differs:
            await self._sleepers.sleep(reply_id, timeout_s=timeout_s)

    async def drop(
        self, *, older_than_s: float | None = None, reply_ids: Sequence[str] = ()
    ) -> int:
        """Deletes logs of turns that finished long ago, or those named."""
        dropped = {reply_id for reply_id in reply_ids if self._is_there(reply_id)}
        if older_than_s is not None:
            now = self._store.clock.now()
            dropped |= {name for name in self._replies if self._is_old(name, now - older_than_s)}
            for reply_id, reply in list(self._replies.items()):
                if reply.buried_at is not None and reply.buried_at <= now - BURIED_S:
                    del self._replies[reply_id]
        for reply_id in sorted(dropped):  # in an order that a replayed simulation repeats
            del self._replies[reply_id]
            self._sleepers.wake(reply_id)
        return len(dropped)

    def lose(self, reply_id: str) -> None:
        """For tests: the log is gone as if its system had been emptied."""
        if self._is_there(reply_id):
            del self._replies[reply_id]
            self._sleepers.wake(reply_id)

    def copy(self) -> Mapping[str, object]:
        """For tests: what a replica of the system has at this moment."""
        return {
            reply_id: replace(reply, entries=list(reply.entries))
            for reply_id, reply in self._replies.items()
        }

    def fail_over(self, copied: Mapping[str, object]) -> None:
        """For tests: the system is lost, and the replica that held this copy is the system now."""
        names = {*self._replies, *copied}
        self._origin += 1
        self._replies = {}
        for reply_id, reply in copied.items():
            assert isinstance(reply, _Reply)
            self._replies[reply_id] = replace(reply, entries=list(reply.entries))
        for reply_id in sorted(names):
            self._sleepers.wake(reply_id)

    def restart(self, reply_id: str, *, fence: int, attempt: int) -> None:
        """Empties the log for a new attempt; a missing one stays missing until its first fence."""
        reply = self._replies.get(reply_id)
        if reply is None:
            return
        reply.fence = max(reply.fence, fence)
        reply.attempt = attempt
        reply.origin = self._origin
        reply.entries = []
        self._sleepers.wake(reply_id)

    async def bury(self, reply_ids: Sequence[str]) -> None:
        """Removes logs for good: nobody, not even their live owner, can write them again."""
        now = self._store.clock.now()
        for reply_id in reply_ids:
            self._replies[reply_id] = _Reply(BURIED, 0, self._origin, buried_at=now)
            self._sleepers.wake(reply_id)

    def attempt(self, reply_id: str) -> int:
        """The attempt of the log, 0 if it is missing."""
        reply = self._replies.get(reply_id)
        return reply.attempt if reply is not None else 0

    def _in_doubt(self, reply: _Reply) -> bool:
        return reply.origin != self._origin

    def _is_there(self, reply_id: str) -> bool:
        reply = self._replies.get(reply_id)
        return reply is not None and reply.buried_at is None

    def _is_old(self, reply_id: str, finished_before: float) -> bool:
        turn = self._store.turns.get(reply_id)
        return (
            turn is not None
            and turn.status.is_final
            and turn.finished_at is not None
            and turn.finished_at <= finished_before
            and self._is_there(reply_id)
        )
