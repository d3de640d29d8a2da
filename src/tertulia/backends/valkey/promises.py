"""What the refused were promised, in Valkey: for each lane and pool, by the server's clock."""

from __future__ import annotations

import hashlib
from typing import Final

from tertulia.backends.valkey.client import Client
from tertulia.backends.valkey.scripts import script
from tertulia.core import returns
from tertulia.core.types import Lane

_PROMISE: Final = script("promise")

# The door waits for this answer: longer than it takes, and less than anybody feels.
_BUDGET_S: Final = 0.05
# What is the same for all, in the order of the script.
_RULES: Final = tuple(
    str(rule)
    for rule in (
        returns.AIM,
        returns.GRACE_S * 1000,
        returns.SHORTEST_S * 1000,
        returns.LONGEST_S * 1000,
        returns.MOST,
        returns.KEEPS,
        returns.BELIEVED,
        returns.FEWEST,
    )
)


class ValkeyPromises:
    """The `Promises` port."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def ask(
        self,
        lane: Lane,
        owner: str,
        *,
        pool: str = "",
        wait_s: float,
        limit_s: float,
        kept_s: float,
        starts_per_s: float,
    ) -> float | None:
        """None to come in, or the seconds to come back after."""
        # Braces: both in one slot of a cluster. A model's name may have some, which end one early.
        apart = f":{hashlib.sha256(pool.encode()).hexdigest()[:16]}" if pool else ""
        moments = f"tertulia:promises:{{{lane.name.lower()}{apart}}}"
        times = (wait_s * 1000, limit_s * 1000, kept_s * 1000, 1000 / starts_per_s)
        words = (*times, returns.spread(owner))
        told: int = await self._client.run(
            _PROMISE,
            [moments, f"{moments}:state"],
            owner,
            *(f"{word:.6f}" for word in words),
            *_RULES,
            budget_s=_BUDGET_S,
        )
        return told / 1000 if told >= 0 else None
