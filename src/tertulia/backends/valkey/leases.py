"""Leases in Valkey: for each name a set of leases, sorted by their ends by the server's clock.

A lease of a process bears the process's name; a key that ends by itself says that it lives.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from tertulia.backends.valkey.client import Client
from tertulia.backends.valkey.scripts import script
from tertulia.ports import PROCESS_S

_TAKE: Final = script("take")
_RENEW: Final = script("renew")

# Who waits for an answer waits less; this bounds what nobody waits for any more.
_BUDGET_S: Final = 0.5
# Names that are renewed at once: somebody who takes is not behind all of a gateway's.
_AT_ONCE: Final = 1000
_TAKEN: Final = -1
# Between a lease and the process that has it.
_OF: Final = "@"
# So many leases of a name are looked through for those of dead processes.
_LOOKED_AT: Final = 200


class ValkeyLeases:
    """The `Leases` port."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._process = secrets.token_hex(8)
        self._has_said = False

    async def take(
        self, name: str, lease: str, *, limit: int, lasts_s: float, of_process: bool = False
    ) -> float | None:
        """None: it is held. Else in how many seconds there is a place."""
        assert limit > 0, limit
        if not of_process:
            return await self._take(name, lease, limit, lasts_s)
        if not self._has_said:
            await self._say_that_we_live()
        wait_s = await self._take(name, self._own(lease), limit, lasts_s)
        if wait_s is not None and await self._free_what_the_dead_hold(name):
            wait_s = await self._take(name, self._own(lease), limit, lasts_s)
        return wait_s

    async def renew(self, held: Sequence[tuple[str, str]], *, lasts_s: float) -> None:
        """All of them are held from now on."""
        await self._say_that_we_live()
        by_name: dict[str, list[str]] = {}
        for name, lease in held:
            by_name.setdefault(name, []).append(self._own(lease))
        names = list(by_name)
        for first in range(0, len(names), _AT_ONCE):
            part = names[first : first + _AT_ONCE]
            await asyncio.gather(*(self._renew(name, by_name[name], lasts_s) for name in part))

    def free(self, name: str, lease: str) -> None:
        """Ends one, if it is there and the server is."""
        self._client.tell(_key(name), "ZREM", _key(name), lease, self._own(lease))

    def forget(self, name: str) -> None:
        """Ends all of the name's, if the server is there."""
        self._client.tell(_key(name), "DEL", _key(name))

    async def _take(self, name: str, lease: str, limit: int, lasts_s: float) -> float | None:
        words = (lease, limit, _ms(lasts_s))
        wait_ms = await self._client.run(_TAKE, [_key(name)], *words, budget_s=_BUDGET_S)
        return None if wait_ms == _TAKEN else wait_ms / 1000

    async def _renew(self, name: str, leases: Sequence[str], lasts_s: float) -> None:
        await self._client.run(_RENEW, [_key(name)], _ms(lasts_s), *leases, budget_s=_BUDGET_S)

    async def _say_that_we_live(self) -> None:
        await self._call(_life(self._process), "SET", "", "PX", _ms(PROCESS_S))
        self._has_said = True

    async def _free_what_the_dead_hold(self, name: str) -> bool:
        """Whether there was any. Those that end first are looked at: not renewed for longest."""
        held: defaultdict[str, list[bytes]] = defaultdict(list)
        for lease in await self._call(_key(name), "ZRANGE", 0, _LOOKED_AT - 1):
            _, of, process = lease.decode().rpartition(_OF)
            if of and process != self._process:
                held[process].append(lease)
        lives = await asyncio.gather(*(self._call(_life(process), "EXISTS") for process in held))
        dead = [process for process, alive in zip(held, lives, strict=True) if not alive]
        if dead:
            await self._call(_key(name), "ZREM", *(lease for one in dead for lease in held[one]))
        return bool(dead)

    async def _call(self, key: str, command: str, *words: str | bytes | int) -> Any:
        return await self._client.call(key, command, key, *words, budget_s=_BUDGET_S)

    def _own(self, lease: str) -> str:
        return f"{lease}{_OF}{self._process}"


def _key(name: str) -> str:
    return f"tertulia:leases:{{{name}}}"


def _life(process: str) -> str:
    return f"tertulia:process:{process}"


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
