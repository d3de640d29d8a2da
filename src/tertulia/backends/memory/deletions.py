"""Orders to delete in memory, and the end of accounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tertulia.backends.cursors import read_deletion_cursor, write_deletion_cursor
from tertulia.backends.memory.batches import KeptBatches
from tertulia.backends.memory.store import MemoryStore
from tertulia.core.deletions import Deletion, DeletionKind, Place, Scrubbed, name_mark
from tertulia.core.types import Page
from tertulia.ports_of_deletions import Aged, Claimed


class MemoryDeletions:
    """The `Deletions` port."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def claim(self, *, lease_s: float) -> Claimed | None:
        """The order that has been due longest."""
        now = self._store.clock.now()
        due = [
            kept
            for kept in self._store.deletions.values()
            if kept.deletion.done_at is None and kept.due_at <= now
        ]
        if not due:
            return None
        first = min(due, key=lambda kept: (kept.due_at, kept.deletion.owner, kept.deletion.target))
        first.due_at = now + lease_s
        return Claimed(first.deletion, now)

    async def save(self, deletion: Deletion, *, pause_s: float) -> bool:
        """What a look found, unless another look came first."""
        kept = self._store.deletions.get((deletion.owner, deletion.target))
        if kept is None or kept.deletion.done_at is not None:
            return False
        was = kept.deletion
        if (was.looks + 1, was.requested_at) != (deletion.looks, deletion.requested_at):
            return False
        now = self._store.clock.now()
        kept.deletion = replace(deletion, done_at=None if deletion.done_at is None else now)
        kept.due_at = now + pause_s
        return True

    async def page(self, *, cursor: str | None, limit: int) -> Page[Deletion]:
        """One page, newest first."""
        found = sorted(
            (kept.deletion for kept in self._store.deletions.values()), key=_place, reverse=True
        )
        if cursor is not None:
            before = read_deletion_cursor(cursor)
            found = [deletion for deletion in found if _place(deletion) < before]
        items = tuple(found[:limit])
        more = len(found) > limit
        return Page(items, write_deletion_cursor(*_place(items[-1])) if more and items else None)

    async def overdue(self, *, age_s: float) -> int:
        """How many are not over that were given so long ago."""
        old = self._store.clock.now() - age_s
        return sum(
            kept.deletion.done_at is None and kept.deletion.requested_at <= old
            for kept in self._store.deletions.values()
        )

    async def sweep(self, *, rows: int, kept_s: float) -> int:
        """Removes orders that have been over for long."""
        old = self._store.clock.now() - kept_s
        gone = [
            key
            for key, kept in sorted(self._store.deletions.items())
            if kept.deletion.done_at is not None and kept.deletion.done_at <= old
        ][:rows]
        for key in gone:
            del self._store.deletions[key]
        return len(gone)


class MemoryErasure:
    """The `Erasure` port."""

    def __init__(self, store: MemoryStore, batches: KeptBatches) -> None:
        self._store = store
        self._batches = batches

    async def close(self, user_id: str) -> bool:
        """Ends an account, with its credentials."""
        store = self._store
        for opened in (store.sessions, store.links):
            for token_hash in [one for one, its in opened.items() if its.user_id == user_id]:
                del opened[token_hash]
        for known in [one for one, its in store.identities.items() if its.user_id == user_id]:
            del store.identities[known]
        for key_id in [one for one, key in store.api_keys.items() if key.owner == user_id]:
            del store.api_keys[key_id]
        user = store.users.pop(user_id, None)
        if user is None:
            return False
        del store.names[user.name.casefold()]
        store.departed[user_id] = name_mark(user.name)
        store.order_deletion(user_id, user_id, DeletionKind.ACCOUNT)
        return True

    async def left(self, deletion: Deletion) -> frozenset[Place]:
        """Places that hold something still. No log is left behind here."""
        owner, store = deletion.owner, self._store
        if deletion.kind is not DeletionKind.ACCOUNT:
            is_there = (owner, deletion.target) in store.conversations
            stays = deletion.kind is DeletionKind.MESSAGES
            return frozenset({Place.ROWS} if is_there and not stays else ())
        held = {
            Place.ROWS: any(whose == owner for whose, _ in store.conversations)
            or any(turn.owner == owner for turn in store.turns.values())
            or store.told_now(owner) is not None,
            Place.BATCHES: any(whose == owner for whose, _ in self._batches.kept),
            Place.FILES: self._batches.files.holds_of(owner),
        }
        return frozenset(place for place, is_held in held.items() if is_held)

    async def scrub(self, _owner: str, _deleted_at: float, /) -> Scrubbed | None:
        """Nothing is on a disk."""
        return "overwritten"

    async def aged(self, kept_s: Mapping[str, float], *, limit: int) -> Sequence[Aged]:
        """What nobody has touched for longer than it is kept."""
        now, found = self._store.clock.now(), []
        for (owner, conversation_id), one in sorted(self._store.conversations.items()):
            if owner in kept_s and self._store.touched_at(one) <= now - kept_s[owner]:
                found.append(Aged(owner, conversation_id))
        return found[:limit]


def _place(deletion: Deletion) -> tuple[float, str, str]:
    return deletion.requested_at, deletion.owner, deletion.target
