"""Entries of a reply as the bytes that Valkey keeps and publishes, and back.

An entry is a line `kind, length of data, length of ids`, then both. Its number is not in it: a
batch is kept under the number of its last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast, get_args

from tertulia.core.types import Entry, EventKind

_KINDS: Final = {kind.encode(): kind for kind in get_args(EventKind)}


class EntriesBroken(Exception):
    """Bytes that are not entries, or not those that should be there."""


def packed(entries: Sequence[Entry]) -> bytes:
    """A batch of entries."""
    parts: list[bytes] = []
    for entry in entries:
        head = f"{entry.kind} {len(entry.data)} {len(entry.ids)}\n"
        parts += (head.encode(), entry.data, entry.ids)
    return b"".join(parts)


def unpacked(batch: bytes, *, last: int) -> list[Entry]:
    """The entries of a batch, of which the last has the number `last`; EntriesBroken for other
    bytes."""
    found: list[tuple[EventKind, bytes, bytes]] = []
    at = 0
    try:
        while at < len(batch):
            end = batch.index(b"\n", at)
            kind, data_bytes, ids_bytes = batch[at:end].split(b" ")
            ids_at = end + 1 + int(data_bytes)
            at = ids_at + int(ids_bytes)
            if not end < ids_at <= at:
                raise EntriesBroken  # a length below zero: it would never come to the end
            found.append((_kind(kind), batch[end + 1 : ids_at], batch[ids_at:at]))
    except ValueError as error:
        raise EntriesBroken from error
    if at != len(batch) or len(found) > last:
        raise EntriesBroken
    return [Entry(seq, *parts) for seq, parts in enumerate(found, last - len(found) + 1)]


def _kind(kind: bytes) -> EventKind:
    """A newer version of us may write kinds that this one does not know: they are passed on."""
    return _KINDS.get(kind) or cast(EventKind, kind.decode())
