"""One line before several models: which of them are full for a lane, and when turns get through.

A turn that must have one model waits for that one alone, and stands in nobody's way at the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tertulia.core.types import Lane, ModelState

# This part of the slots is kept free of batches: whoever comes to chat finds one, and need not wait
# until an engine has put somebody aside.
IDLE_SHARE: Final = 8


@dataclass(frozen=True, slots=True)
class Pool:
    """The slots of all models that people call by one `name`; `names` has theirs, too.
    `ranked_slots` of them are at engines that put those of a lane behind aside."""

    name: str
    names: frozenset[str]
    slots: int
    ranked_slots: int = 0


def pools_of(models: Sequence[ModelState]) -> tuple[Pool, ...]:
    """The pools that can generate, in the order of the models."""
    ready = [model for model in models if model.state == "ready" and model.slots > 0]
    return tuple(
        Pool(
            name,
            frozenset({name, *(model.served for model in ready if model.name == name)}),
            sum(model.slots for model in ready if model.name == name),
            sum(model.ranked_slots for model in ready if model.name == name),
        )
        for name in dict.fromkeys(model.name for model in ready)
    )


def ranked_share(pools: Sequence[Pool]) -> float:
    """Of all slots, the share at engines that put those of a lane behind aside."""
    n_slots = sum(pool.slots for pool in pools)
    return sum(pool.ranked_slots for pool in pools) / n_slots if n_slots else 0.0


def room_for(
    lane: Lane, models: Sequence[ModelState], before: Mapping[str, int]
) -> Sequence[ModelState]:
    """The models with the room that a turn of this lane has on each.

    At an engine with priorities it takes the place of any of a lane behind it, so a model is full
    for it only once it runs as many `before` it or beside as it has such slots; those known of.
    Else a paid turn would be sent to the small model while free work runs on the large one.
    """
    if not lane.is_chat:
        return models
    return [
        replace(m, room=max(m.room, m.ranked_slots - before.get(m.served, 0)))
        if m.state == "ready"
        else m
        for m in models
    ]


def full_for(
    lane: Lane, models: Sequence[ModelState], before: Mapping[str, int]
) -> tuple[tuple[Lane, str], ...]:
    """The names for which a turn of this lane should go on waiting: models of that name are ready,
    and none has room for it."""
    ready = [m for m in room_for(lane, models, before) if m.state == "ready"]
    names = dict.fromkeys(name for m in ready for name in (m.name, m.served))
    return tuple((lane, name) for name in names if not _has_room(lane, name, ready))


def kept_free(n_slots: int) -> int:
    """Slots that no batch may take; where there is only one, none."""
    return min(max(1, n_slots // IDLE_SHARE), max(0, n_slots - 1))


def _has_room(lane: Lane, name: str, ready: Iterable[ModelState]) -> bool:
    return any(
        m.room > (0 if lane.is_chat else kept_free(m.slots))
        for m in ready
        if name in (m.name, m.served)
    )


@dataclass(frozen=True, slots=True)
class Opening:
    """A pool as its slots come free: `spare` are free now beyond those that wait for it alone
    (below 0: so many more wait), and `per_s` turns a second can begin there. Never 0."""

    spare: float
    per_s: float

    def passed(self, at_s: float) -> float:
        """How many turns that would go anywhere can have begun there by then."""
        return max(0.0, self.spare + self.per_s * at_s)


def through_s(openings: Sequence[Opening], n_turns: float) -> float:
    """After how many seconds so many turns that go anywhere can have begun, each where it can
    first; there must be somewhere."""
    assert openings
    spare = per_s = at_s = 0.0
    for opening in sorted(openings, key=_opens_s):
        if per_s > 0.0 and (n_turns - spare) / per_s <= _opens_s(opening):
            break  # they are through before this one opens
        at_s = _opens_s(opening)
        spare, per_s = spare + opening.spare, per_s + opening.per_s
    return max(at_s, (n_turns - spare) / per_s)


def _opens_s(opening: Opening) -> float:
    return max(0.0, -opening.spare / opening.per_s)
