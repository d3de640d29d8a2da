"""Whether entries go on from what a log holds: the same for every back end."""

from __future__ import annotations

from collections.abc import Sequence

from tertulia.core.types import Append, Entry


def going_on(held: Sequence[Entry], more: Sequence[Entry]) -> Append | None:
    """What the holder of a log's fence is answered; None if the entries are to be added.

    `held` is the log. Entries that it ends with already are DONE: their writer asks again.
    """
    if not more:
        return Append.DONE
    first, last = more[0].seq, more[-1].seq
    if first < 1 or not is_gapless(more, first):
        return Append.STALE
    if first > len(held) + 1:
        return Append.MISSING
    if first == len(held) + 1:
        return None
    is_its_end = last == len(held) and tuple(held[first - 1 :]) == tuple(more)
    return Append.DONE if is_its_end else Append.STALE


def is_gapless(entries: Sequence[Entry], first: int) -> bool:
    """Whether the entries are numbered one by one from `first`."""
    return all(entry.seq == seq for seq, entry in enumerate(entries, first))
