"""Channels that this process listens to: what is published there, and when listening broke.

It promises nothing about what is missed: whoever listens is told when that may have happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import hiredis

from tertulia.backends.valkey.connection import Connection, ConnectionLost, TooMuchWaits, pack
from tertulia.backends.valkey.node import Node
from tertulia.backends.valkey.slots import slot_of
from tertulia.ports import StoreUnavailable


class Finder(Protocol):
    """Finds the server that a channel is published at."""

    def node_of(self, slot: int) -> Node | None: ...
    def look_soon(self) -> None: ...
    async def looked(self, deadline: float) -> None: ...


@dataclass(slots=True)
class _Channel:
    """Invariant: `line` is where it is subscribed, or its subscription is on the way there."""

    slot: int
    line: Connection
    joined: asyncio.Future[bool]
    heard: Callable[[bytes], None]
    broken: Callable[[], None]


class Feed:
    """Sharded channels: each is published at the server that has its slot."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._channels: dict[str, _Channel] = {}

    async def join(
        self,
        name: str,
        deadline: float,
        *,
        heard: Callable[[bytes], None],
        broken: Callable[[], None],
    ) -> None:
        """Returns once all that is published from now on will be `heard`, until it is `broken`
        (once; then it must be joined again). StoreUnavailable when that took too long.

        Joining again what is joined costs nothing, and keeps the first listener.
        """
        loop = asyncio.get_running_loop()
        while True:
            channel = self._channels.get(name)
            if channel is None:
                slot = slot_of(name)
                node = self._finder.node_of(slot)
                if node is None or node.feed is None or not node.feed.alive:
                    await self._finder.looked(deadline)
                    continue
                try:
                    node.feed.tell(pack("SSUBSCRIBE", name))
                except (ConnectionLost, TooMuchWaits):
                    await self._finder.looked(deadline)
                    continue
                channel = _Channel(slot, node.feed, loop.create_future(), heard, broken)
                self._channels[name] = channel
            if channel.joined.done():
                return
            try:
                async with asyncio.timeout_at(deadline):
                    await asyncio.shield(channel.joined)
            except TimeoutError:
                raise StoreUnavailable("Valkey did not let us listen in time") from None

    def has_joined(self, name: str) -> bool:
        """Whether all that is published there now is heard here."""
        channel = self._channels.get(name)
        return channel is not None and channel.joined.done() and channel.joined.result()

    def leave(self, name: str) -> None:
        """Stops listening; nothing more is heard."""
        channel = self._channels.pop(name, None)
        if channel is not None:
            self._quit(name, channel)

    def moved(self) -> None:
        """Servers have changed their places: what is now published elsewhere is broken here."""
        for name, channel in list(self._channels.items()):
            node = self._finder.node_of(channel.slot)
            if node is None or node.feed is not channel.line:
                self._quit(name, channel)
                self._break(name)

    def lost(self, line: Connection) -> None:
        """A server's feed broke: everything on it is broken."""
        self._finder.look_soon()
        for name, channel in list(self._channels.items()):
            if channel.line is line:
                self._break(name)

    def pushed(self, line: Connection, push: Any) -> None:
        """What a server sends to its subscribers."""
        if isinstance(push, hiredis.ReplyError):
            # A slot has moved, or we may not listen: the error does not say for which channel.
            line.fail(str(push))
            return
        if not isinstance(push, list) or len(push) != 3:
            return  # a pong
        name = push[1].decode()
        channel = self._channels.get(name)
        if channel is None or channel.line is not line:
            return
        if push[0] == b"smessage":
            channel.heard(push[2])
        elif push[0] == b"ssubscribe":
            if not channel.joined.done():
                channel.joined.set_result(True)
        elif push[0] == b"sunsubscribe" and channel.joined.done():
            # Not by our wish, which would have forgotten it first: its slot has moved.
            self._break(name)

    def _break(self, name: str) -> None:
        channel = self._channels.pop(name)
        if not channel.joined.done():
            channel.joined.set_result(False)
        channel.broken()

    @staticmethod
    def _quit(name: str, channel: _Channel) -> None:
        try:
            channel.line.tell(pack("SUNSUBSCRIBE", name))
        except (ConnectionLost, TooMuchWaits):
            return  # the subscription ends with the connection
