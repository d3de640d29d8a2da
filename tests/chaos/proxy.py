"""A relay between two processes that misbehaves as told: waits, trickles, falls silent, breaks.

It never changes a byte and never reorders any: what it lets through is what was sent.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

# One read; small enough that a delayed connection holds little.
_READ_BYTES: Final = 65_536
# A close with this option sends RST instead of FIN.
_NO_LINGER: Final = struct.pack("ii", 1, 0)
_CONNECT_S: Final = 5.0

Way = Literal["up", "down"]  # to the server, to the client


@dataclass(slots=True)
class Weather:
    """How a relay treats its connections now.

    `held` are the ways on which nothing passes (both: a partition; one: half of it). `refuses` ends
    new connections with RST. `trickle` passes so many bytes every `tick_s`.
    """

    held: frozenset[Way] = frozenset()
    refuses: bool = False
    delay_s: float = 0.0
    trickle: int = 0
    tick_s: float = 0.01


@dataclass(slots=True, eq=False)
class _Wire:
    """One connection through the relay: both ends, and whether its peers were forgotten."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    # Half-open: the other side is gone without a word, so nothing ever passes again, not even FIN.
    is_dead: bool = False
    # Breaks within the next piece that goes down, after its first part.
    cut: Literal["", "middle", "character"] = ""

    def reset(self) -> None:
        for end in (self.client, self.server):
            _reset(end)


@dataclass(slots=True)
class Relay:
    """One listening port and where it leads."""

    host: str
    target: int
    port: int = 0
    weather: Weather = field(default_factory=Weather)
    n_bytes: int = 0
    _wires: set[_Wire] = field(default_factory=set)
    _serving: set[asyncio.Task[None]] = field(default_factory=set)
    _clear: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listens from now on."""
        self._server = await asyncio.start_server(self._accept, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Listens no more; what is connected is reset."""
        assert self._server is not None
        self._server.close()
        self.reset()
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    def turn(self, weather: Weather) -> None:
        """From now on."""
        self.weather = weather
        self._clear.set()  # whoever waits looks again
        self._clear = asyncio.Event()

    def reset(self) -> int:
        """RST to both ends of every connection; how many there were."""
        wires = list(self._wires)
        for wire in wires:
            wire.reset()
        return len(wires)

    def forget(self) -> int:
        """Every connection becomes half-open for good; new ones pass."""
        for wire in self._wires:
            wire.is_dead = True
        return len(self._wires)

    def cut(self, where: Literal["middle", "character"]) -> int:
        """Each connection breaks within the next piece to its client: in its middle, or within a
        character of several bytes, for which it may wait a while."""
        for wire in self._wires:
            wire.cut = where
        return len(self._wires)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.weather.refuses:
            _reset(writer)
            return
        try:
            async with asyncio.timeout(_CONNECT_S):
                answers, onward = await asyncio.open_connection(self.host, self.target)
        except (OSError, TimeoutError):
            _reset(writer)  # as if nobody listened here
            return
        wire = _Wire(writer, onward)
        self._wires.add(wire)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(wire, reader, onward, "up"))
                tasks.create_task(self._pump(wire, answers, writer, "down"))
        finally:
            self._wires.discard(wire)
            writer.close()
            onward.close()

    async def _pump(
        self,
        wire: _Wire,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        way: Way,
    ) -> None:
        try:
            while piece := await source.read(_READ_BYTES):
                await self._wait_for_passage(wire, way)
                if way == "down" and (end := _cut_at(piece, wire.cut)):
                    sink.write(piece[:end])
                    await sink.drain()
                    wire.reset()
                    return
                await self._pass_on(piece, sink)
            await self._wait_for_passage(wire, way)
            sink.write_eof()
        except OSError:
            # A broken side breaks the other, unless that peer is meant to know nothing.
            await self._wait_for_passage(wire, way)
            _reset(sink)

    async def _wait_for_passage(self, wire: _Wire, way: Way) -> None:
        """Bytes that meet a partition wait for its end, as the sender's system sends them again."""
        while wire.is_dead or way in self.weather.held:
            await self._clear.wait()
        if self.weather.delay_s:
            await asyncio.sleep(self.weather.delay_s)

    async def _pass_on(self, piece: bytes, sink: asyncio.StreamWriter) -> None:
        self.n_bytes += len(piece)
        while self.weather.trickle and piece:
            sink.write(piece[: self.weather.trickle])
            piece = piece[self.weather.trickle :]
            await sink.drain()
            await asyncio.sleep(self.weather.tick_s)
        sink.write(piece)
        await sink.drain()


def _cut_at(piece: bytes, cut: str) -> int:
    """Where this piece is to break; 0 for nowhere."""
    if cut == "middle":
        return max(1, len(piece) // 2)
    if cut == "character":
        return next((at + 1 for at, byte in enumerate(piece) if byte >= 0xC0), 0)
    return 0


def _reset(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket | None = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()


def apply(relay: Relay, order: dict[str, Any]) -> int:
    """Does one order of the nemesis: `{"do": "turn", "held": ["up"]}`, `{"do": "reset"}` ...

    `relays`, which may be there, says who is meant.
    """
    orders: dict[str, Callable[..., int | None]] = {
        "reset": relay.reset,
        "forget": relay.forget,
        "cut": relay.cut,
    }
    given = {name: value for name, value in order.items() if name not in ("do", "relays")}
    if order["do"] == "turn":
        relay.turn(Weather(**{**given, "held": frozenset(given.get("held", ()))}))
        return 0
    return orders[order["do"]](**given) or 0
