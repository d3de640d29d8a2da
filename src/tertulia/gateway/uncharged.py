"""Bounds the turns that end at the door: a refused message, a ready reply. They cost nothing, so no
budget bounds them, but each is stored."""

from __future__ import annotations

from typing import Final

from tertulia.gateway.desk import Desk

# Of a user, over all gateways: a person sends a few a minute, and a day of a program that sends
# nothing else is some megabytes.
ALLOWED: Final = 60
WINDOW_S: Final = 60.0


async def uncharged_wait_s(desk: Desk, owner: str) -> float | None:
    """None: the owner may have one more, which is counted. Else the seconds until there is room."""
    name, one = f"uncharged:{owner}", desk.new_id("try")
    return await desk.counters.take(name, one, limit=ALLOWED, lasts_s=WINDOW_S)
