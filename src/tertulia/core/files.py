"""Files of people's programs: what a batch reads and what it writes. Plain values; nothing is
decided here but what a file is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

# The last is read by an import, which deletes it.
Purpose = Literal["batch", "batch_output", "import"]

# A file is stored and read in pieces of at most this: small beside a process, and a commit that
# carries one delays no other noticeably.
PART_BYTES: Final = 256 * 1024
# An upload that was not finished by then never will be. Results may take as long as they like.
UNFINISHED_S: Final = 3600.0
# Parts that one round of a chore removes: deleted bytes are overwritten, which takes the disk a
# while, and nobody may wait for that.
SWEPT_PARTS: Final = 16
# Deleted files are on the disk until then. With them an owner's may take so many times the room:
# all can be replaced at once, and who sends and deletes in a loop does not fill the disk.
WITH_DELETED: Final = 2


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file before its first byte. It is kept for `kept_s` from then on, by the store's clock."""

    owner: str
    id: str
    name: str
    purpose: Purpose
    kept_s: float


@dataclass(frozen=True, slots=True)
class FilePart:
    """Bytes that follow the first `at` ones. With the last part the file is whole."""

    at: int
    data: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A whole file of one owner; times are seconds of the store's clock."""

    owner: str
    id: str
    name: str
    purpose: Purpose
    created_at: float
    expires_at: float
    size: int


@dataclass(frozen=True, slots=True)
class FileRoom:
    """What one owner's files may take together, whole or not."""

    files: int
    size: int

    def is_full(self, taken: Taken, *, more: int) -> bool:
        """Whether a part of `more` bytes has no room beside what is there."""
        return (
            taken.files >= self.files
            or taken.size + more > self.size
            or taken.files_on_disk >= WITH_DELETED * self.files
            or taken.size_on_disk + more > WITH_DELETED * self.size
        )


@dataclass(frozen=True, slots=True)
class Taken:
    """What an owner's files take: the others by number, all of them by bytes. `on_disk` are also
    those that were deleted and are not overwritten yet."""

    files: int
    size: int
    files_on_disk: int
    size_on_disk: int


def parts_of(at: int, data: bytes, *, last: Literal["last", "more"]) -> tuple[FilePart, ...]:
    """The bytes after the first `at` ones in parts of the right size; one that is empty, if there
    is nothing but the end to be written."""
    cuts = range(0, max(1, len(data)), PART_BYTES)
    return tuple(
        FilePart(
            at + cut,
            data[cut : cut + PART_BYTES],
            is_last=last == "last" and cut + PART_BYTES >= len(data),
        )
        for cut in cuts
    )


class Written(StrEnum):
    """A store's answer to a part."""

    DONE = "done"
    FULL = "full"  # the owner's room is used up: nothing was written
    GONE = "gone"  # no such unfinished file, or it does not end there
