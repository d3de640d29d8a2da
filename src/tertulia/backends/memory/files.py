"""Files in memory, in the parts that they came in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tertulia.core.files import (
    PART_BYTES,
    UNFINISHED_S,
    FilePart,
    FileRoom,
    NewFile,
    StoredFile,
    Taken,
    Written,
)
from tertulia.core.types import Page
from tertulia.ports import Clock


@dataclass(slots=True)
class _Kept:
    """A file as far as it came."""

    new: NewFile
    created_at: float
    parts: list[bytes] = field(default_factory=list)
    is_whole: bool = False
    is_deleted: bool = False

    @property
    def size(self) -> int:
        return sum(len(part) for part in self.parts)

    @property
    def expires_at(self) -> float:
        return self.created_at + self.new.kept_s

    def stored(self) -> StoredFile:
        new = self.new
        return StoredFile(
            new.owner, new.id, new.name, new.purpose, self.created_at, self.expires_at, self.size
        )


class MemoryFiles:
    """The `Files` port."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._files: dict[tuple[str, str], _Kept] = {}

    async def write(self, file: NewFile, part: FilePart, room: FileRoom) -> Written:
        """One step: the part, its file if it is the first, or why not."""
        theirs = {its: kept for (owner, its), kept in self._files.items() if owner == file.owner}
        there = {its: kept for its, kept in theirs.items() if not kept.is_deleted}
        taken = Taken(
            files=len(there.keys() - {file.id}),
            size=sum(kept.size for kept in there.values()),
            files_on_disk=len(theirs.keys() - {file.id}),
            size_on_disk=sum(kept.size for kept in theirs.values()),
        )
        if room.is_full(taken, more=len(part.data)):
            return Written.FULL
        return self.append(file, part)

    def append(self, file: NewFile, part: FilePart) -> Written:
        """The same without a bound, for results."""
        assert len(part.data) <= PART_BYTES, len(part.data)
        key, now = (file.owner, file.id), self._clock.now()
        known = self._files.get(key)
        if known is None and part.at == 0:
            known = self._files[key] = _Kept(file, now)
        if known is None or known.is_whole or known.is_deleted or known.size != part.at:
            return Written.GONE
        if part.data:
            known.parts.append(part.data)
        known.new = file
        known.is_whole = part.is_last
        return Written.DONE

    async def find(self, owner: str, file_id: str) -> StoredFile | None:
        """The owner's whole file."""
        kept = self._there(owner, file_id)
        return kept.stored() if kept is not None else None

    async def list(
        self,
        owner: str,
        *,
        purpose: str | None,
        after: str | None,
        limit: int,
        order: Literal["asc", "desc"],
    ) -> Page[StoredFile]:
        """One page, by age."""
        down = order == "desc"
        ids = sorted((file_id for its, file_id in self._files if its == owner), reverse=down)
        found = []
        for file_id in ids:
            kept = self._there(owner, file_id)
            is_behind = after is None or (file_id < after if down else file_id > after)
            if kept is not None and is_behind and purpose in (None, kept.new.purpose):
                found.append(kept.stored())
        more = len(found) > limit
        return Page(tuple(found[:limit]), found[limit - 1].id if more else None)

    async def read(self, owner: str, file_id: str, *, at: int, size: int) -> bytes | None:
        """Bytes of the owner's whole file."""
        kept = self._there(owner, file_id)
        return b"".join(kept.parts)[at : at + size] if kept is not None else None

    async def delete(self, owner: str, file_id: str | None) -> bool:
        """Takes a file, or all of the owner's, out of everybody's sight."""
        found = [
            kept
            for (its_owner, its_id), kept in self._files.items()
            if its_owner == owner
            and not kept.is_deleted
            and file_id in (None, its_id)
            and kept.expires_at > self._clock.now()
        ]
        for kept in found:
            kept.is_deleted = True
        return bool(found)

    def holds_of(self, owner: str) -> bool:
        """Whether anything of an owner's files is there still, deleted or not."""
        return any(whose == owner for whose, _ in self._files)

    async def sweep(self, *, parts: int) -> int:
        """Removes what is left of files that nobody can see any more."""
        removed = 0
        for key in sorted(self._files):
            kept = self._files[key]
            if not self._is_waste(kept):
                continue
            kept.is_deleted = True
            while kept.parts and removed < parts:
                kept.parts.pop()
                removed += 1
            if not kept.parts:
                del self._files[key]
        return removed

    def _there(self, owner: str, file_id: str) -> _Kept | None:
        kept = self._files.get((owner, file_id))
        if kept is None or kept.is_deleted or not kept.is_whole:
            return None
        return kept if kept.expires_at > self._clock.now() else None

    def _is_waste(self, kept: _Kept) -> bool:
        now = self._clock.now()
        is_upload = kept.new.purpose != "batch_output"
        is_late = is_upload and not kept.is_whole and kept.created_at <= now - UNFINISHED_S
        return kept.is_deleted or kept.expires_at <= now or is_late
