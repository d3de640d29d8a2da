"""Who goes next within a lane: start-time fair queueing over users (Goyal et al. 1996), with what
turns cost an engine as their length (the virtual token counters of Sheng et al. 2024).

Ranks, tags and costs are in thousandths of a unit. Nothing here keeps them.
"""

from __future__ import annotations

from tertulia.core.quota import cost
from tertulia.core.types import Turn


def rank_of(*, tag: int, floor: int, last: int | None) -> int:
    """Where a new turn stands in its lane; the lowest rank goes first, of equal ones the oldest.

    `tag` is what its owner's turns of this lane have come to, `floor` the lane's virtual time,
    `last` the highest rank among the owner's turns that still wait. Whoever was away begins at the
    floor: idleness earns nothing. Nobody passes a turn of his own.
    """
    return max(tag, floor, 0 if last is None else last + 1)


def virtual_time(first: int | None, highest_tag: int | None) -> int:
    """How far a lane has come: the rank of the `first` who waits. Once nobody waits everybody is
    alike, so it is the highest tag that anybody has."""
    if first is not None:
        return first
    return highest_tag or 0


def worst_cost(turn: Turn) -> int:
    """What a turn is taken to cost while nobody knows better: its owner's tag goes up by it."""
    return max(1, cost("units", turn.worst_case))


def unused_cost(turn: Turn) -> int:
    """What an ended turn did not cost after all: its owner's tag goes down by it."""
    return max(0, worst_cost(turn) - cost("units", turn.usage))
