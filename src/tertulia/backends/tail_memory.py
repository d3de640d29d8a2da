"""What the ends of followed logs take in memory: one bound and one measure for every back end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tertulia.core.types import Entry

# Memory for tails: some thousands of whole replies; the one unread for longest goes first.
TAIL_BYTES: Final = 64 * 1024 * 1024
_ENTRY_BYTES: Final = 200  # what Python adds to each entry


def size_of(entries: Sequence[Entry]) -> int:
    """Bytes that these entries take."""
    return sum(len(entry.data) + len(entry.ids) + _ENTRY_BYTES for entry in entries)
