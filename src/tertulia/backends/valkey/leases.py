"""Leases in Valkey: for each name a set of leases, sorted by their ends by the server's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from tertulia.backends.valkey.client import Client
from tertulia.backends.valkey.scripts import script

_TAKE: Final = script("take")
_RENEW: Final = script("renew")

# Who waits for an answer waits less; this bounds what nobody waits for any more.
_BUDGET_S: Final = 0.5
# Names that are renewed at once: somebody who takes is not behind all of a gateway's.
_AT_ONCE: Final = 1000
_TAKEN: Final = -1


class ValkeyLeases:
    """The `Leases` port."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def take(self, name: str, lease: str, *, limit: int, lasts_s: float) -> float | None:
        """None: it is held. Else in how many seconds there is a place."""
        assert limit > 0, limit
        words = (lease, limit, _ms(lasts_s))
        wait_ms = await self._client.run(_TAKE, [_key(name)], *words, budget_s=_BUDGET_S)
        return None if wait_ms == _TAKEN else wait_ms / 1000

    async def renew(self, held: Sequence[tuple[str, str]], *, lasts_s: float) -> None:
        """All of them are held from now on."""
        by_name: dict[str, list[str]] = {}
        for name, lease in held:
            by_name.setdefault(name, []).append(lease)
        names = list(by_name)
        for first in range(0, len(names), _AT_ONCE):
            part = names[first : first + _AT_ONCE]
            await asyncio.gather(*(self._renew(name, by_name[name], lasts_s) for name in part))

    def free(self, name: str, lease: str) -> None:
        """Ends one, if it is there and the server is."""
        self._client.tell(_key(name), "ZREM", _key(name), lease)

    def forget(self, name: str) -> None:
        """Ends all of the name's, if the server is there."""
        self._client.tell(_key(name), "DEL", _key(name))

    async def _renew(self, name: str, leases: Sequence[str], lasts_s: float) -> None:
        await self._client.run(_RENEW, [_key(name)], _ms(lasts_s), *leases, budget_s=_BUDGET_S)


def _key(name: str) -> str:
    return f"tertulia:leases:{{{name}}}"


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
