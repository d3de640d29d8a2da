"""Looks through the ledger, owner by owner: are the balances what the settlements say?

It must never change a settlement: they are the facts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from tertulia.backends.clock import SystemClock
from tertulia.config import Settings
from tertulia.core.quota import in_units
from tertulia.core.types import Balance
from tertulia.wiring.stores import opened_stores

_OWNERS_AT_ONCE: Final = 500  # ids alone: a page of them is nothing beside what is read of each


async def look_through_ledger(
    settings: Settings, what: Literal["check", "rebuild"], say: Callable[[str], None]
) -> tuple[int, int]:
    """How many owners there are, and how many balances were wrong; each is said.

    StoreUnavailable or CantOpen if the stores can't be used.
    """
    n_owners, n_drifts, after = 0, 0, ""
    async with opened_stores(settings, SystemClock()) as stores:
        look = stores.ledger.check if what == "check" else stores.ledger.rebuild
        while owners := await stores.ledger.owners(after=after, limit=_OWNERS_AT_ONCE):
            for owner in owners:
                drifts = await look(owner)
                for name, drift in drifts.items():
                    say(f"{owner} {name}: {_words(drift.kept)} kept, {_words(drift.due)} due")
                n_drifts += len(drifts)
            n_owners, after = n_owners + len(owners), owners[-1]
    return n_owners, n_drifts


def _words(balance: Balance | None) -> str:
    return "nothing" if balance is None else f"{in_units(balance.used)} used at {balance.at_ms} ms"
