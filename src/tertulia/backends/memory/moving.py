"""Export and import in memory: everything of one owner in order, and imports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tertulia.backends.memory.store import MemoryStore, Settled
from tertulia.core.imports import (
    IMPORT_TRANSITIONS,
    Import,
    NewImport,
    Progress,
    Taken,
    TooManyImports,
    begun,
    compared,
    dated,
    moved_on,
    tallied,
)
from tertulia.core.transcripts import Arrival
from tertulia.core.types import Conversation, DayUse, Message, Page, Usage

_DAY_MS: Final = 86_400_000


class MemoryTranscripts:
    """The `Transcripts` port."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def count(self, owner: str) -> int:
        """All conversations of the owner."""
        return sum(its_owner == owner for its_owner, _ in self._store.conversations)

    async def conversations(self, owner: str, *, after: str, limit: int) -> Sequence[Conversation]:
        """The next ones by id."""
        ids = sorted(one for its, one in self._store.conversations if its == owner and one > after)
        return tuple(self._store.conversations[owner, one] for one in ids[:limit])

    async def messages(
        self, owner: str, conversation_id: str, *, after: int, limit: int
    ) -> Sequence[tuple[Message, str]]:
        """The next ones by number."""
        store = self._store
        ids = store.message_ids.get((owner, conversation_id), [])
        found = [store.messages[owner, one] for one in ids]
        later = sorted((m for m in found if m.seq > after), key=lambda message: message.seq)
        return tuple(
            (message._replace(ids=None), store.ratings.get((owner, message.id), ""))
            for message in later[:limit]
        )

    async def used(self, owner: str, *, limit: int) -> Sequence[DayUse]:
        """What was settled by day and model."""
        found: dict[tuple[int, str | None], list[Settled]] = {}
        for one in self._store.settlements.values():
            if one.owner == owner:
                place = (one.settlement.at_ms // _DAY_MS, one.model)
                found.setdefault(place, []).append(one)
        places = sorted(found, key=lambda place: (-place[0], place[1] or ""))[:limit]
        return tuple(_day_use(*place, found[place]) for place in _by_day(places))


def _by_day(places: Sequence[tuple[int, str | None]]) -> list[tuple[int, str | None]]:
    return sorted(places, key=lambda place: (place[0], place[1] or ""))


def _day_use(day: int, model: str | None, runs: Sequence[Settled]) -> DayUse:
    usages = [run.settlement.usage for run in runs]
    usage = Usage(
        sum(usage.input for usage in usages),
        sum(usage.cached for usage in usages),
        sum(usage.output for usage in usages),
    )
    replies = len({run.reply_id for run in runs})
    return DayUse(day, model, replies, usage, sum(run.charged for run in runs))


@dataclass(slots=True)
class _Kept:
    """An import, and until when somebody works on it."""

    job: Import
    lease_until: float = 0.0


@dataclass(slots=True)
class KeptImports:
    """What both ports look at."""

    store: MemoryStore
    kept: dict[tuple[str, str], _Kept] = field(default_factory=dict)


class MemoryImports:
    """The `Imports` port."""

    def __init__(self, kept: KeptImports) -> None:
        self._all = kept

    async def create(self, new: NewImport, *, limit: int) -> Import | TooManyImports:
        """A new import, waiting."""
        active = [
            kept
            for (owner, _), kept in self._all.kept.items()
            if owner == new.owner and not kept.job.state.is_final
        ]
        if len(active) >= limit:
            return TooManyImports(limit)
        made = begun(new, self._all.store.clock.now())
        self._all.kept[new.owner, new.id] = _Kept(made)
        return made

    async def find(self, owner: str, import_id: str) -> Import | None:
        """The owner's import."""
        kept = self._all.kept.get((owner, import_id))
        return kept.job if kept is not None else None

    async def list(self, owner: str, *, after: str | None, limit: int) -> Page[Import]:
        """One page, newest first."""
        found = [
            kept.job
            for (its_owner, its_id), kept in sorted(self._all.kept.items(), reverse=True)
            if its_owner == owner and (after is None or its_id < after)
        ]
        more = len(found) > limit
        return Page(tuple(found[:limit]), found[limit - 1].id if more else None)

    async def cancel(self, owner: str, import_id: str) -> Import | None:
        """Cancelled, if it had not ended; else as it is."""
        kept = self._all.kept.get((owner, import_id))
        if kept is None:
            return None
        if "cancel" in IMPORT_TRANSITIONS[kept.job.state]:
            ended = dated(moved_on(kept.job, "cancel"), self._all.store.clock.now())
            kept.job = replace(ended, epoch=ended.epoch + 1)
        return kept.job

    async def delete(self, owner: str, import_id: str | None) -> bool:
        """One of the owner's, or all."""
        gone = [key for key in self._all.kept if key[0] == owner and import_id in (None, key[1])]
        for key in gone:
            del self._all.kept[key]
        return bool(gone)


class MemoryImportWork:
    """The `ImportWork` port."""

    def __init__(self, kept: KeptImports) -> None:
        self._all = kept

    async def claim(self, *, lease_s: float) -> Import | None:
        """The oldest that nobody works on, at its next epoch."""
        now = self._all.store.clock.now()
        due = [
            kept
            for kept in self._all.kept.values()
            if not kept.job.state.is_final and kept.lease_until <= now
        ]
        if not due:
            return None
        kept = min(due, key=lambda kept: (kept.job.created_at, kept.job.id))
        kept.job = replace(moved_on(kept.job, "claim"), epoch=kept.job.epoch + 1)
        kept.lease_until = now + lease_s
        return kept.job

    async def save(self, progress: Progress) -> Import | None:
        """One step, under the epoch of the import."""
        job, now = progress.job, self._all.store.clock.now()
        kept = self._all.kept.get((job.owner, job.id))
        if kept is None or kept.job.epoch != job.epoch:
            return None
        outcomes = [self._take_in(arrival) for arrival in progress.arrivals]
        kept.job = tallied(progress, outcomes, now)
        kept.lease_until = now + progress.lease_s if progress.then == "hold" else 0.0
        return kept.job

    async def sweep(self, *, kept_s: float) -> int:
        """Removes what ended long ago."""
        old = self._all.store.clock.now() - kept_s
        gone = [
            key
            for key, kept in self._all.kept.items()
            if kept.job.ended_at is not None and kept.job.ended_at <= old
        ]
        for key in gone:
            del self._all.kept[key]
        return len(gone)

    def _take_in(self, arrival: Arrival) -> Taken:
        store, conversation = self._all.store, arrival.conversation
        owner = conversation.owner
        for its_id in (arrival.same_as, store.conversation_keys.get((owner, arrival.key))):
            if its_id is not None and (owner, its_id) in store.conversations:
                return compared(len(store.message_ids[owner, its_id]), arrival)
        store.conversations[owner, conversation.id] = conversation
        store.conversation_keys[owner, arrival.key] = conversation.id
        store.arrived[owner, conversation.id] = store.clock.now()
        store.message_ids[owner, conversation.id] = []
        for message in arrival.messages:
            store.put_message(message)
        store.ratings.update({(owner, one): why for one, why in arrival.whys.items()})
        store.move_head(owner, conversation.id, conversation.head_message_id)
        return Taken.MADE
