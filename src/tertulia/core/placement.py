"""Which model answers a turn, and what the user is told about why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tertulia.core.types import ModelState, Reason

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen model; `pin` says whether the conversation stays with it."""

    model: ModelState
    reason: Reason
    pin: Literal["pin", "keep"]


def choose_model(
    requested: str, *, pinned: str | None, models: Sequence[ModelState]
) -> Choice | None:
    """The model for a new turn, or None: wait, it is only starting.

    `models` are in order of preference for `auto`, best first. A conversation stays on the model
    it was pinned to. A stand-in, for a model that is not there or has no room, pins nothing.
    """
    by_name = {name: m for m in models for name in (m.name, m.served)}
    wanted = by_name.get(requested if requested != AUTO else pinned or "")
    if wanted is not None:
        reason = Reason.PICKED if requested != AUTO else Reason.AUTO
        if wanted.state == "ready":
            return Choice(wanted, reason, "pin")
        if wanted.state == "starting":
            return None
        return _stand_in(models, Reason.UNAVAILABLE)
    return _automatic(models)


def _automatic(models: Sequence[ModelState]) -> Choice | None:
    best = models[0] if models else None
    if best is not None and best.state == "ready" and best.room > 0:
        return Choice(best, Reason.AUTO, "pin")
    if best is None:
        return None
    if best.state == "ready":
        return _stand_in(models[1:], Reason.OVERFLOW) or Choice(best, Reason.AUTO, "pin")
    return _stand_in(models[1:], Reason.AUTO if best.state == "absent" else Reason.UNAVAILABLE)


def _stand_in(models: Sequence[ModelState], reason: Reason) -> Choice | None:
    ready = [m for m in models if m.state == "ready"]
    if not ready:
        return None
    roomy = [m for m in ready if m.room > 0] or ready
    return Choice(roomy[0], reason, "keep")
