"""What a turn waits for at the door: a model that it must have, or any that has room.

The small model stands in for one that has no room within the plan's wait, where the plan lets it.
Nothing is promised or counted here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tertulia.core.choice import SMALL, Wish, awaited
from tertulia.core.ladder import Terms
from tertulia.core.types import Reason
from tertulia.gateway.desk import Desk


@dataclass(frozen=True, slots=True)
class Stand:
    """`awaited` as in a `Turn`; `lowered` says why it is the small model, if that is decided."""

    awaited: str | None
    lowered: Reason | None = None


async def stand_of(desk: Desk, terms: Terms, wish: Wish, *, entering: Stand | None = None) -> Stand:
    """Where in the line a turn with this wish belongs; `entering` is how it is counted already."""
    models = desk.replicas.models()
    if terms.goes_to_small:
        # Not kept with the turn: what holds is the rung when it begins.
        return Stand(awaited(replace(wish, lowered=Reason.LADDER), models))
    name = awaited(wish, models)
    if name is None or not terms.may_overflow(wish.requested):
        return Stand(name)
    lane = terms.plan.lane
    itself = None if entering is None else (lane, entering.awaited)
    told = await desk.line.expected(lane, name, entering=itself)
    if told is None or told.wait_s <= terms.starts_within_s:
        return Stand(name)
    if awaited(replace(wish, lowered=Reason.OVERFLOW), models) != SMALL:
        return Stand(name)  # there is no small model now
    instead = await desk.line.expected(lane, SMALL, entering=itself)
    is_sooner = instead is not None and instead.wait_s < told.wait_s
    return Stand(SMALL, Reason.OVERFLOW) if is_sooner else Stand(name)
