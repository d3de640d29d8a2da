"""What one gateway process keeps for itself between requests: counters and memories, all bounded.

Nothing here is the truth about anything; a restart loses it and nobody notices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from tertulia.gateway.desk import Desk
from tertulia.gateway.figures import Figures
from tertulia.gateway.passwords import Passwords
from tertulia.gateway.retries import Retries
from tertulia.gateway.throttle import Throttle


@dataclass(frozen=True, slots=True)
class Front:
    """One process's reception: the desk behind it and what it remembers about its visitors."""

    desk: Desk
    figures: Figures
    passwords: Passwords
    logins_by_name: Throttle
    logins_by_address: Throttle
    registrations: Throttle
    retries: Retries


def open_front(desk: Desk) -> Front:
    """A front with empty memories."""
    return Front(
        desk=desk,
        figures=Figures(),
        passwords=Passwords(),
        # Ten guesses in five minutes are plenty for a person and useless against ten characters.
        logins_by_name=Throttle(desk.clock, allowed=10, window_s=300.0),
        # An office behind one address signs in more often than one person does.
        logins_by_address=Throttle(desk.clock, allowed=300, window_s=300.0),
        # Each account brings a budget with it: an address can't make them without end (S-37).
        registrations=Throttle(desk.clock, allowed=60, window_s=3600.0),
        retries=Retries(desk.clock),
    )


def front_of(request: Request) -> Front:
    """The front that `create_app` put on the application."""
    front: Front = request.app.state.front
    return front


AtFront = Annotated[Front, Depends(front_of)]
