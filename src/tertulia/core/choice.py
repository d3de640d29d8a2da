"""Which model answers a turn, what the user is told about why, and which names may be asked for.

`auto` sends what looks easy to the small model. A conversation goes up to the large one once, with
its first hard question, and stays there: going back and forth would change its tone from turn to
turn and read its whole history anew each time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tertulia.core.types import ModelState, Reason

AUTO: Final = "auto"
# What people pick the lesser model as; every other name is a large one's.
SMALL: Final = "small"


@dataclass(frozen=True, slots=True)
class Wish:
    """What a turn brings along. `easy` is what the grade of its question says.

    `pinned` is the model that answered the conversation so far. `lowered` says why the turn must
    make do with the small model, whatever it asks for.
    """

    requested: str
    pinned: str | None = None
    easy: bool = False
    lowered: Reason | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen model; `pin` says whether the conversation stays with it."""

    model: ModelState
    reason: Reason
    pin: Literal["pin", "keep"]


def pickable(models: Sequence[ModelState], allowed: Collection[str]) -> tuple[str, ...]:
    """The names that may be asked for: `auto`, then each model as people call it, then by itself.

    `allowed` holds either kind of name; to allow what people call a model allows the model.
    """
    open_to = [m for m in models if m.name in allowed or m.served in allowed]
    people_say = [m.name for m in open_to if m.name in allowed]
    return tuple(dict.fromkeys((AUTO, *people_say, *(m.served for m in open_to))))


def is_served(name: str, models: Sequence[ModelState]) -> bool:
    """Whether anybody may ask for it here, by either of its names."""
    return name == AUTO or any(name in (m.name, m.served) for m in models)


def choose_model(wish: Wish, models: Sequence[ModelState]) -> Choice | None:
    """The model for a new turn, or None: wait, it is only starting.

    `models` are in order of preference, with the room that the turn's lane has on each
    (`core.pools.room_for`). A stand-in, for a model that is not there or has no room, pins nothing.
    """
    choice = _automatic(wish, models) if wish.requested == AUTO else _picked(wish, models)
    if wish.lowered is not None and not _is_small(choice):
        small = _best(_small(models))
        if small is not None:
            return Choice(small, wish.lowered, "keep")
    return choice


def awaited(wish: Wish, models: Sequence[ModelState]) -> str | None:
    """The model that a new turn waits for, by one of its names; None: any that has room will do.

    `choose_model` finds it that one, or None, whatever room the others have.
    """
    if wish.lowered is not None and _best(_small(models)) is not None:
        return SMALL
    if wish.requested != AUTO:
        wanted = [m for m in models if wish.requested in (m.name, m.served) and _is_there(m)]
        own = [m for m in wanted if m.served == wish.pinned and m.state == "ready"]
        return own[0].served if own else wish.requested if wanted else None
    pinned = next((m for m in models if wish.pinned in (m.served, m.name)), None)
    if pinned is None or not _is_there(pinned):
        return None
    goes_up = pinned.name == SMALL and not wish.easy and bool(_larger(models))
    return None if goes_up else pinned.served


def _picked(wish: Wish, models: Sequence[ModelState]) -> Choice | None:
    wanted = [m for m in models if wish.requested in (m.name, m.served)]
    if not wanted:  # it was served when the turn was admitted
        return _stand_in(models, Reason.UNAVAILABLE)
    # Of several versions under one name the conversation's own; it is no other model to it.
    own = [m for m in wanted if m.served == wish.pinned]
    found = _best(own) or _best(wanted)
    if found is not None:
        return Choice(found, Reason.PICKED, "pin")
    if any(m.state == "starting" for m in wanted):
        return None
    return _stand_in(models, Reason.UNAVAILABLE)


def _automatic(wish: Wish, models: Sequence[ModelState]) -> Choice | None:
    own = next((m for m in models if wish.pinned in (m.served, m.name)), None)
    if own is None:
        return _easy(models) if wish.easy else _hard(models)
    if own.name == SMALL and not wish.easy and _larger(models):
        return _going_up(own, models)
    if own.state == "ready":
        return Choice(own, Reason.AUTO, "pin")
    if own.state == "starting":
        return None
    return _stand_in(models, _reason_beside(own))


def _easy(models: Sequence[ModelState]) -> Choice | None:
    """The small model; the large one if only that has room, or if it alone is there."""
    small = [m for m in _small(models) if m.state != "absent"]
    ready = _best(small)
    if ready is not None and ready.room > 0:
        return Choice(ready, Reason.AUTO, "pin")
    large = _best(_larger(models))
    if large is not None and (ready is None or large.room > 0):
        # Where a small model is only away for the moment, the next easy question goes to it again.
        return Choice(large, Reason.AUTO, "keep" if small else "pin")
    if ready is not None:
        return Choice(ready, Reason.AUTO, "pin")
    return None


def _hard(models: Sequence[ModelState]) -> Choice | None:
    """The large model if it has room, else the small one; without any large one, what there is."""
    proper = _larger(models) or models
    best = _best(proper)
    if best is not None and best.room > 0:
        return Choice(best, Reason.AUTO, "pin")
    others = [m for m in models if m not in proper]
    if best is not None:
        return _stand_in(others, Reason.OVERFLOW) or Choice(best, Reason.AUTO, "pin")
    is_missed = any(m.state != "absent" for m in proper)
    return _stand_in(others, Reason.UNAVAILABLE if is_missed else Reason.AUTO)


def _going_up(own: ModelState, models: Sequence[ModelState]) -> Choice | None:
    """A hard question to a conversation with the small model `own`, which is its own version."""
    choice = _hard(models)
    if choice is not None and _is_small(choice) and own.state == "ready":
        return Choice(own, choice.reason, "keep")
    return choice


def _reason_beside(own: ModelState) -> Reason:
    """Why another model than the conversation's own answers: a larger one needs no excuse."""
    return Reason.AUTO if own.name == SMALL else Reason.UNAVAILABLE


def _stand_in(models: Sequence[ModelState], reason: Reason) -> Choice | None:
    found = _best(models)
    return Choice(found, reason, "keep") if found is not None else None


def _best(models: Sequence[ModelState]) -> ModelState | None:
    """The first that is ready and has room, else the first that is ready."""
    ready = [m for m in models if m.state == "ready"]
    return next((m for m in ready if m.room > 0), ready[0] if ready else None)


def _small(models: Sequence[ModelState]) -> list[ModelState]:
    return [m for m in models if m.name == SMALL]


def _larger(models: Sequence[ModelState]) -> list[ModelState]:
    return [m for m in models if m.name != SMALL]


def _is_there(model: ModelState) -> bool:
    return model.state in ("ready", "starting")


def _is_small(choice: Choice | None) -> bool:
    return choice is not None and choice.model.name == SMALL
