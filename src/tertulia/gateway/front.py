"""What one gateway process keeps for itself between requests: figures and memories, all bounded,
and the limits on tries that it shares with the others.

Nothing here is the truth about anything; a restart loses it and nobody notices.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from starlette.requests import Request

from tertulia.core.identities import FLOW_S
from tertulia.gateway.desk import Desk
from tertulia.gateway.figures import Figures
from tertulia.gateway.passwords import Passwords
from tertulia.gateway.retries import Retries
from tertulia.gateway.throttle import Throttle


@dataclass(frozen=True, slots=True)
class Front:
    """One process's reception: the desk behind it and what it remembers about its visitors."""

    desk: Desk
    passwords: Passwords
    logins_by_name: Throttle
    logins_by_address: Throttle
    provider_sign_ins: Throttle
    flows: Throttle
    registrations: Throttle
    exports: Throttle
    imports: Throttle
    wrong_links: Throttle
    retries: Retries
    # Exports of everybody copy one conversation at a time.
    copying: asyncio.Lock

    @property
    def figures(self) -> Figures:
        """This gateway's counters."""
        return self.desk.figures


def open_front(desk: Desk) -> Front:
    """A front with empty memories."""
    return Front(
        desk=desk,
        passwords=Passwords(),
        # Ten guesses in five minutes are plenty for a person and useless against ten characters.
        logins_by_name=_throttle(desk, "logins-by-name", allowed=10, window_s=300.0),
        # Only wrong ones count: an office behind one address signs in as often as it likes, and
        # mistypes more often than one person does.
        logins_by_address=_throttle(desk, "logins-by-address", allowed=300, window_s=300.0),
        # The same by way of providers; a way there and one back are counted each.
        provider_sign_ins=_throttle(desk, "provider-sign-ins", allowed=300, window_s=300.0),
        # What began once comes back once. A provider redeems a code once, too, so that nothing is
        # lost where the counters' store forgets.
        flows=_throttle(desk, "sign-in-flows", allowed=1, window_s=FLOW_S),
        # Each account brings a budget with it: an address can't make them without end (S-37).
        registrations=_throttle(desk, "registrations", allowed=60, window_s=3600.0),
        # Each reads all that its owner has ever said, or takes hundreds of megabytes in. Nobody
        # needs it often, but somebody who tries things out needs it some times in a row.
        exports=_throttle(desk, "exports", allowed=10, window_s=3600.0),
        imports=_throttle(desk, "imports", allowed=20, window_s=3600.0),
        # Nobody guesses 256 bits: this bounds what trying costs us. As with sign-ins, an office
        # behind one address opens as many right ones as it likes.
        wrong_links=_throttle(desk, "wrong-links", allowed=300, window_s=300.0),
        retries=Retries(desk.clock),
        copying=asyncio.Lock(),
    )


def _throttle(desk: Desk, what: str, *, allowed: int, window_s: float) -> Throttle:
    return Throttle(desk.counters, desk.new_id, what, allowed=allowed, window_s=window_s)


async def front_of(request: Request) -> Front:
    """The front that `create_app` put on the application.

    It waits for nothing, but FastAPI takes a plain function to a thread.
    """
    front: Front = request.app.state.front
    return front


AtFront = Annotated[Front, Depends(front_of)]
