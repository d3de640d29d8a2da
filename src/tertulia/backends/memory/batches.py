"""Batches in memory: as people see them, and as work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tertulia.backends.memory.files import MemoryFiles
from tertulia.backends.memory.store import MemoryStore
from tertulia.core.batches import (
    BATCH_TRANSITIONS,
    Batch,
    BatchLine,
    BatchStatus,
    LineState,
    LineTurn,
    NewBatch,
    OpenLine,
    Saved,
    TooManyBatches,
    Work,
    moved,
    started,
    turn_key,
)
from tertulia.core.types import KeyReused, Page


@dataclass(slots=True)
class _Kept:
    """A batch with its lines by number, and who may work on it."""

    batch: Batch
    key: str | None
    body_sha: str
    lines: dict[int, BatchLine] = field(default_factory=dict)
    lease_until: float = 0.0
    due_at: float = 0.0
    saved_at: float = 0.0
    is_deleted: bool = False

    @property
    def is_active(self) -> bool:
        return not self.is_deleted and not self.batch.status.is_final

    @property
    def open(self) -> list[BatchLine]:
        return [line for _, line in sorted(self.lines.items()) if line.state is LineState.OPEN]


@dataclass(slots=True)
class KeptBatches:
    """What both ports look at."""

    store: MemoryStore
    files: MemoryFiles
    kept: dict[tuple[str, str], _Kept] = field(default_factory=dict)

    def there(self, owner: str, batch_id: str) -> _Kept | None:
        """The owner's batch, unless deleted."""
        kept = self.kept.get((owner, batch_id))
        return kept if kept is not None and not kept.is_deleted else None

    def active(self) -> Iterator[_Kept]:
        """Those that have not ended."""
        return (kept for kept in self.kept.values() if kept.is_active)


class MemoryBatches:
    """The `Batches` port."""

    def __init__(self, kept: KeptBatches) -> None:
        self._all = kept

    async def create(self, new: NewBatch, *, limit: int) -> Batch | TooManyBatches | KeyReused:
        """A new batch, or the one that was made with this key."""
        theirs = [
            kept
            for (owner, _), kept in self._all.kept.items()
            if owner == new.owner and not kept.is_deleted
        ]
        for kept in theirs:
            if new.key is not None and kept.key == new.key:
                return kept.batch if kept.body_sha == new.body_sha else KeyReused()
        if sum(kept.is_active for kept in theirs) >= limit:
            return TooManyBatches(limit)
        now = self._all.store.clock.now()
        made = _Kept(started(new, now), new.key, new.body_sha, due_at=now)
        self._all.kept[new.owner, new.id] = made
        return made.batch

    async def find(self, owner: str, batch_id: str) -> Batch | None:
        """The owner's batch."""
        kept = self._all.there(owner, batch_id)
        return kept.batch if kept is not None else None

    async def list(self, owner: str, *, after: str | None, limit: int) -> Page[Batch]:
        """One page, newest first."""
        found = [
            kept.batch
            for (its_owner, batch_id), kept in sorted(self._all.kept.items(), reverse=True)
            if its_owner == owner and not kept.is_deleted and (after is None or batch_id < after)
        ]
        more = len(found) > limit
        return Page(tuple(found[:limit]), found[limit - 1].id if more else None)

    async def cancel(self, owner: str, batch_id: str) -> Batch | None:
        """Cancelling, if it may be; else as it is."""
        kept = self._all.there(owner, batch_id)
        if kept is None:
            return None
        if "cancel" in BATCH_TRANSITIONS[kept.batch.status]:
            now = self._all.store.clock.now()
            changed = moved(kept.batch, "cancel", now)
            kept.batch = replace(changed, epoch=changed.epoch + 1)
            kept.lease_until = kept.due_at = kept.saved_at = 0.0
        return kept.batch

    async def delete(self, owner: str) -> None:
        """All of the owner's."""
        for (its_owner, _), kept in self._all.kept.items():
            if its_owner == owner:
                kept.is_deleted = True


class MemoryBatchWork:
    """The `BatchWork` port."""

    def __init__(self, kept: KeptBatches) -> None:
        self._all = kept

    async def claim(self, *, lease_s: float) -> Work | None:
        """The batch that waits longest, at its next epoch."""
        now = self._all.store.clock.now()
        due = [
            kept
            for kept in self._all.active()
            if kept.due_at <= now and (kept.lease_until == 0.0 or kept.lease_until <= now)
        ]
        if not due:
            return None
        kept = min(due, key=lambda kept: (kept.saved_at, kept.batch.id))
        kept.batch = replace(kept.batch, epoch=kept.batch.epoch + 1)
        kept.lease_until = now + lease_s
        running = [k for k in self._all.active() if k.batch.status is BatchStatus.IN_PROGRESS]
        others = [k for k in self._all.active() if k is not kept]
        owner = kept.batch.owner
        return Work(
            batch=kept.batch,
            now=now,
            open=tuple(self._open_line(kept.batch, line) for line in kept.open),
            open_elsewhere=sum(self._turns_of(k) for k in others),
            open_of_owner=sum(self._turns_of(k) for k in others if k.batch.owner == owner),
            batches=len(running),
            of_owner=sum(k.batch.owner == owner for k in running),
        )

    async def taken(self, owner: str, batch_id: str, custom_ids: Sequence[str]) -> frozenset[str]:
        """Which of these the batch has."""
        lines = self._all.kept[owner, batch_id].lines.values()
        return frozenset(custom_ids) & {line.custom_id for line in lines}

    async def lines(
        self, owner: str, batch_id: str, *, after: int, limit: int
    ) -> Sequence[BatchLine]:
        """The next lines after one."""
        kept = self._all.there(owner, batch_id)
        if kept is None:
            return ()
        return tuple(line for n, line in sorted(kept.lines.items()) if n > after)[:limit]

    async def save(self, saved: Saved) -> bool:
        """One step, under the epoch of the batch."""
        batch = saved.batch
        kept = self._all.there(batch.owner, batch.id)
        if kept is None or kept.batch.epoch != batch.epoch:
            return False
        kept.batch = batch
        kept.lines.update({line.n: line for line in saved.lines})
        for file, part in saved.parts:
            self._all.files.append(file, part)
        if saved.then == "release":
            kept.lease_until = 0.0
            kept.due_at = saved.due_at
            kept.saved_at = self._all.store.clock.now()
        return True

    async def sweep(self, *, rows: int, kept_s: float) -> int:
        """Removes lines that nobody needs any more, and then their batch if it is old."""
        removed, now = 0, self._all.store.clock.now()
        for key in sorted(self._all.kept):
            kept = self._all.kept[key]
            if kept.is_active:
                continue
            for n in sorted(kept.lines)[: rows - removed]:
                del kept.lines[n]
                self._loosen(kept.batch, n)
                removed += 1
            is_old = kept.batch.created_at <= now - kept_s
            if not kept.lines and (kept.is_deleted or is_old):
                del self._all.kept[key]
        return removed

    def _loosen(self, batch: Batch, n: int) -> None:
        """A line's turn, once nobody needs it, is forgotten like any other of no conversation."""
        store = self._all.store
        reply_id = store.turn_keys.get((batch.owner, turn_key(batch.id, n)))
        if reply_id is not None:
            store.turns[reply_id] = store.turns[reply_id]._replace(kind="stateless")

    def _turns_of(self, kept: _Kept) -> int:
        """Its open lines that have a turn which has not ended."""
        turns = [self._open_line(kept.batch, line).turn for line in kept.open]
        return sum(turn is not None and not turn.status.is_final for turn in turns)

    def _open_line(self, batch: Batch, line: BatchLine) -> OpenLine:
        store = self._all.store
        reply_id = store.turn_keys.get((batch.owner, turn_key(batch.id, line.n)))
        if reply_id is None:
            return OpenLine(line, None)
        turn = store.turns[reply_id]
        return OpenLine(line, LineTurn(turn.status, turn.finish, turn.failure, turn.usage))
