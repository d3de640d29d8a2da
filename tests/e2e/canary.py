"""Looks for words that were deleted in every byte that a service stored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from tertulia.core.turn import pack_ids


def found_in(folder: Path, canaries: Iterable[bytes]) -> dict[str, int]:
    """How often any of these stands in each file below the folder."""
    wanted = tuple(canaries)
    counts: dict[str, int] = {}
    for path in _files(folder):
        try:
            data = path.read_bytes()
        except OSError:
            continue  # it was a temporary one
        count = sum(data.count(canary) for canary in wanted)
        if count:
            counts[str(path.relative_to(folder))] = count
    return counts


def ways_to_write(word: str, ids: Iterable[tuple[int, ...]] = ()) -> list[bytes]:
    """How a store may have written a word: as it is, folded, as JSON, in UTF-16; or the tokens of
    some of its text."""
    texts = {word, word.casefold(), json.dumps(word)[1:-1]}
    ways = {text.encode(coding) for text in texts for coding in ("utf-8", "utf-16-le")}
    return sorted(ways | {pack_ids(some) for some in ids})


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink())
