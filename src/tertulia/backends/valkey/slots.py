"""Which of a cluster's slots a key lives in, and which server has which slots."""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from typing import Any, Final

SLOTS: Final = 16384


def slot_of(key: str) -> int:
    """The key's slot: that of what stands in its first braces, if anything does."""
    begin = key.find("{")
    end = key.find("}", begin + 1) if begin >= 0 else -1
    tag = key[begin + 1 : end] if end > begin + 1 else key
    return crc_hqx(tag.encode(), 0) % SLOTS


def primaries_of(answer: Sequence[Any]) -> list[tuple[range, str, int]]:
    """From CLUSTER SLOTS: each range of slots with its primary's host (empty: the host that was
    asked) and port. Ranges that nobody serves are not in it."""
    return [
        (range(first, last + 1), (primary[0] or b"").decode(), primary[1])
        for first, last, primary, *_ in answer
    ]
