"""The nemesis's hands on Postgres and Valkey: each deed heals what it broke."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tertulia.drills.postgres_server import PostgresServer
from tertulia.drills.valkey_server import ValkeyServer


@dataclass(slots=True)
class StoreHands:
    """`database` is the address of the fleet's; `primary` says which Valkey takes writes now, the
    other is its replica."""

    postgres: PostgresServer
    database: str
    valkeys: list[ValkeyServer]
    primary: int = 0

    @property
    def valkey(self) -> ValkeyServer:
        """The one that takes writes."""
        return self.valkeys[self.primary]

    @property
    def replica(self) -> ValkeyServer:
        """The one that would be promoted."""
        return self.valkeys[1 - self.primary]

    async def kill_valkey(self, down_s: float) -> None:
        """It comes back with nothing, and its replica then has nothing either."""
        await asyncio.to_thread(self.valkey.kill)
        await asyncio.sleep(down_s)
        await asyncio.to_thread(self.valkey.start)

    async def freeze_valkey(self, seconds: float) -> None:
        self.valkey.freeze()
        try:
            await asyncio.sleep(seconds)
        finally:
            self.valkey.thaw()

    async def flush_valkey(self) -> None:
        await asyncio.to_thread(self.valkey.command, "FLUSHALL")

    async def cut_valkey(self) -> None:
        """Every client's connection is closed by the server."""
        for kind in ("normal", "pubsub"):
            await asyncio.to_thread(self.valkey.command, "CLIENT", "KILL", "TYPE", kind)

    async def promote_valkey(self, *, kill: bool) -> None:
        """The replica takes over, from a dead primary or from a living one that steps back."""
        old, new = self.valkey, self.replica
        if kill:
            await asyncio.to_thread(old.kill)
        await asyncio.to_thread(new.promote)
        self.primary = 1 - self.primary
        if kill:
            await asyncio.to_thread(old.start)
        await asyncio.to_thread(old.follow, new)

    async def kill_postgres(self) -> None:
        """All its processes at once; it then recovers from what it had promised to keep."""
        await asyncio.to_thread(self.postgres.kill)
        await asyncio.to_thread(self.postgres.start)

    async def freeze_postgres(self, seconds: float) -> None:
        self.postgres.freeze()
        try:
            await asyncio.sleep(seconds)
        finally:
            self.postgres.thaw()

    async def texts(self) -> dict[str, bytes]:
        """Every key of Valkey with what it holds."""
        found: dict[str, bytes] = {}
        cursor = b"0"
        while True:
            cursor, keys = await asyncio.to_thread(
                self.valkey.command, "SCAN", cursor, "COUNT", "500"
            )
            for key in keys:
                found[key.decode()] = await asyncio.to_thread(self._text_of, key)
            if cursor == b"0":
                return found

    def _text_of(self, key: bytes) -> bytes:
        kind = self.valkey.command("TYPE", key)
        reads = {
            b"stream": ("XRANGE", key, "-", "+"),
            b"hash": ("HGETALL", key),
            b"string": ("GET", key),
            b"zset": ("ZRANGE", key, "0", "-1"),
            b"set": ("SMEMBERS", key),
            b"list": ("LRANGE", key, "0", "-1"),
        }
        return repr(self.valkey.command(*reads[kind])).encode() if kind in reads else b""
