"""A way in for the administrator of a fleet, for whoever may open its database.

It must never print a secret: the caller says to whom it goes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tertulia.backends.clock import SystemClock, SystemIds
from tertulia.config import Settings
from tertulia.gateway.welcome import first_admin, sign_in_token
from tertulia.ports import Accounts, ApiKeys, Clock, NewId, Sessions
from tertulia.wiring.stores import CantOpen, opened_stores


@dataclass(frozen=True, slots=True)
class _Door:
    accounts: Accounts
    sessions: Sessions
    api_keys: ApiKeys
    clock: Clock
    new_id: NewId


async def new_sign_in_token(settings: Settings) -> str:
    """The secret of a new link for the administrator, made if there is nobody yet; CantOpen."""
    clock = SystemClock()
    async with opened_stores(settings, clock) as stores:
        door = _Door(stores.accounts, stores.sessions, stores.api_keys, clock, SystemIds(clock))
        admin = await first_admin(door)
        if admin is None:
            raise CantOpen("the administrator has another name by now: ask an administrator")
        return await sign_in_token(door, admin)
