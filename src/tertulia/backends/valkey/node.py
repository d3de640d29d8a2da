"""One Valkey server: what it says of itself, and the two connections that lead to it.

A server that would lose logs in silence, or that is too old, is never used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import hiredis

from tertulia.backends.valkey.address import Address
from tertulia.backends.valkey.connection import Connection, ConnectionLost, NoAnswer, pack
from tertulia.backends.valkey.scripts import SCRIPTS

# To connect and be let in: a server that takes longer is as good as away, and another may serve.
CONNECT_S: Final = 0.5
# Sharded channels came with Redis 7; every Valkey has them and names 7.2 as what it is like.
_OLDEST: Final = (7, 0)
# What a full server may throw away: nothing, or first what would end soonest by itself.
_HARMLESS_EVICTION: Final = ("noeviction", "volatile-ttl")
_INFO: Final = pack("INFO", "server", "memory", "replication", "cluster")


class UnfitServer(Exception):
    """The server can't be trusted with logs or does not let us in: its settings, or ours, are
    wrong, and waiting won't help."""


@dataclass(frozen=True, slots=True)
class ServerState:
    """What a server says of itself."""

    version: str
    is_cluster: bool
    is_primary: bool
    replicas: int
    offset: int


class Node:
    """One server. Only `look` connects; it is called every second, and at once after a loss.

    Its feed is a second connection, for subscriptions: a reader that is too slow for what it
    follows loses that one and not the one that carries appends.
    """

    def __init__(
        self,
        address: Address,
        *,
        patience_s: float,
        on_lost: Callable[[Connection], None],
        on_push: Callable[[Connection, Any], None],
        on_feed_lost: Callable[[Connection], None],
    ) -> None:
        self.address = address
        self.state: ServerState | None = None
        self.commands: Connection | None = None
        self.feed: Connection | None = None
        self._patience_s = patience_s
        self._on_lost = on_lost
        self._on_push = on_push
        self._on_feed_lost = on_feed_lost

    @property
    def serves(self) -> bool:
        """Whether commands can be sent to it now."""
        return self.commands is not None and self.commands.alive

    async def look(self) -> None:
        """Connects what is not connected, and asks the server how it is.

        OSError or ConnectionLost if it can't be reached, UnfitServer if it can't be used.
        """
        async with asyncio.timeout(CONNECT_S):
            if self.commands is None or not self.commands.alive:
                self.state = None
                self.commands = await self._connect(self._on_lost)
            else:
                self.state = await self._ask_state(self.commands)
            if self.feed is None or not self.feed.alive:
                self.feed = await self._connect(self._on_feed_lost)
                self.feed.listen(self._on_push)
            self.feed.ping()

    def close(self) -> None:
        """Ends its connections."""
        for connection in (self.commands, self.feed):
            if connection is not None:
                connection.fail("closed")

    async def _connect(self, on_lost: Callable[[Connection], None]) -> Connection:
        """A connection on which we were let in, to a server that can be used."""
        address = self.address
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(patience_s=self._patience_s, on_lost=on_lost),
            address.host,
            address.port,
            ssl=address.tls,
        )
        try:
            if address.password is not None:
                who = (address.user,) if address.user is not None else ()
                await self._be_let_in(connection, pack("AUTH", *who, address.password))
            if address.database:
                await self._be_let_in(connection, pack("SELECT", address.database))
            self.state = await self._ask_state(connection)
            # Saves the first callers a second try. What fails here is done there.
            for script in SCRIPTS:
                await _ask(connection, pack("SCRIPT", "LOAD", script.body))
        except BaseException:
            connection.fail("not used")
            raise
        return connection

    async def _be_let_in(self, connection: Connection, packed: bytes) -> None:
        answer = await _ask(connection, packed)
        if isinstance(answer, hiredis.ReplyError):
            raise UnfitServer(f"Valkey at {self.address} does not let us in: {answer}")

    async def _ask_state(self, connection: Connection) -> ServerState:
        told = await _ask(connection, _INFO)
        if isinstance(told, hiredis.ReplyError):
            if str(told).startswith(("NOAUTH", "NOPERM")):
                raise UnfitServer(f"Valkey at {self.address} does not let us in: {told}")
            raise ConnectionLost(str(told))
        if not isinstance(told, bytes):
            connection.fail("its answers are out of order")
            raise ConnectionLost(connection.lost)
        return state_of(told.decode(errors="replace"), self.address)


def state_of(info: str, address: Address) -> ServerState:
    """What INFO says; UnfitServer if that means that logs are not safe there."""
    told = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    if "role" not in told or "redis_version" not in told:
        raise UnfitServer(f"what answers at {address} is no Valkey server that keeps data")
    version = tuple(int(part) for part in told["redis_version"].split(".")[:2])
    if version < _OLDEST:
        raise UnfitServer(
            f"Valkey at {address} speaks like Redis {told['redis_version']}; 7.0 is the oldest "
            "that has what the logs need"
        )
    policy = told.get("maxmemory_policy", "noeviction")
    if told.get("maxmemory", "0") != "0" and policy not in _HARMLESS_EVICTION:
        raise UnfitServer(
            f"Valkey at {address} throws away running replies when it is full "
            f"(maxmemory-policy {policy}); set it to noeviction, or to volatile-ttl"
        )
    return ServerState(
        version=told.get("valkey_version", told["redis_version"]).strip(),
        is_cluster=told.get("cluster_enabled") == "1",
        is_primary=told["role"] == "master",
        replicas=int(told.get("connected_slaves", 0)),
        offset=int(told.get("master_repl_offset", 0)),
    )


async def _ask(connection: Connection, packed: bytes) -> Any:
    try:
        return await connection.send(packed, asyncio.get_running_loop().time() + CONNECT_S)
    except NoAnswer as error:
        raise TimeoutError from error
