"""One streamed generation over one connection: the token path from replica to worker.

Reads are paced: after the first text, which passes at once, the socket is read once per pace, so
that one system call, one parse and one append serve several tokens.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from typing import cast
from urllib.parse import SplitResult

import httptools

from tertulia.backends.replicas.chunks import ChunkBroken, ChunkReader
from tertulia.backends.replicas.pacer import Pacer
from tertulia.core.types import Said, Unit
from tertulia.ports import ReplicaLost, ReplicaRefused

# Enough for an error body or several hundred chunks between two paced reads.
_BUFFER_BYTES = 4_000_000
# With so much unread the socket is left alone, and TCP makes the replica wait.
_UNREAD_BYTES = 65_536
# One paced read: some hundred chunks. What is left comes with the next one.
_READ_BYTES = 65_536
_HEADERS_BYTES = 65_536
# The usage follows the finish in the same write, or in the next one.
USAGE_S = 1.0
_CONNECT_S = 2.0
_EVENT_END = b"\n\n"


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection that carries one response at a time.

    `fail` ends it from outside: the reader then gets ReplicaLost instead of waiting. A reader may
    have each arrival looked at where it happens, and sleep on: to wake it takes as long as to read.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self.fd = -1
        self._parser: httptools.HttpResponseParser | None = None
        self._wake: asyncio.Future[None] | None = None
        self.sleeps_on: Callable[[], bool] | None = None
        self._body = bytearray()
        self._lost: str | None = None
        self._arrived = False
        self._head_bytes = 0
        self.headers: dict[bytes, bytes] = {}
        self.status = 0
        self.complete = False
        self.reusable = False
        self.cut_here = False

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.fd = transport.get_extra_info("socket").fileno()

    def data_received(self, data: bytes) -> None:
        if self._parser is None or len(self._body) > _BUFFER_BYTES:
            self.fail("the replica sent more than was asked")
            return
        self._arrived = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.fail("the replica does not speak HTTP")
            return
        if self.status == 0:
            self._head_bytes += len(data)
            if self._head_bytes > _HEADERS_BYTES:
                self.fail("the replica's headers have no end")
                return
        if len(self._body) > _UNREAD_BYTES:
            self.pause()
        self._awake()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._lost = self._lost or "the replica closed the connection"
        self._transport = None
        self._awake()

    # What httptools calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        assert self._parser is not None
        self.complete = True
        self.reusable = bool(self._parser.should_keep_alive())

    # What the reader calls.

    @property
    def alive(self) -> bool:
        return self._transport is not None and self._lost is None

    def send(self, request: bytes) -> None:
        """Sends a whole request and gets ready for its response."""
        assert self._transport is not None
        self._parser = httptools.HttpResponseParser(self)
        self.sleeps_on = None
        self.status, self.complete, self.reusable = 0, False, False
        self._arrived = False
        self._head_bytes = 0
        self._body.clear()
        self.headers = {}
        self._transport.resume_reading()
        self._transport.write(request)

    def pause(self) -> None:
        """Leaves the socket alone until `read` or `resume`."""
        if self._transport is not None:
            self._transport.pause_reading()

    def read(self) -> None:
        """Takes what has come to a paused connection, or goes on listening if nothing has.

        It goes around the event loop, for which each pause and each return is two system calls.
        """
        transport = self._transport
        if transport is None or self._lost is not None or transport.is_closing():
            return  # the descriptor may be another socket's by now
        try:
            data = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            self.resume()
            return
        except OSError:
            data = b""
        if data:
            self.data_received(data)
        else:
            self.fail("the replica closed the connection")

    def resume(self) -> None:
        """Listens again."""
        if self._transport is not None and not self.complete:
            self._transport.resume_reading()

    def rest(self) -> None:
        """Waits for its next request; while it reads, it hears that the replica has closed it."""
        self._parser = self.sleeps_on = None
        if self._transport is not None:
            self._transport.resume_reading()

    async def more(self) -> None:
        """Waits for bytes, the end of the response or the loss of the connection."""
        # Bytes may have come since the last call.
        if not self._arrived and self._lost is None and not self.complete:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        self._arrived = False

    def take_events(self) -> bytes:
        """The whole events that have come, without the empty line that ends the last one; what
        follows it stays."""
        end = self._body.rfind(_EVENT_END)
        if end < 0:
            return b""
        whole = bytes(self._body[:end])
        del self._body[: end + len(_EVENT_END)]
        return whole

    def take_body(self) -> bytes:
        return bytes(self._body)

    @property
    def lost(self) -> str | None:
        return self._lost

    def cut(self, why: str) -> None:
        """Ends the connection by our own wish, through no fault of the replica's."""
        self.cut_here = self._lost is None
        self.fail(why)

    def fail(self, why: str) -> None:
        """Ends the connection at once."""
        self._lost = self._lost or why
        if self._transport is not None:
            self._transport.abort()
        self._awake()

    def _awake(self) -> None:
        if self._wake is None or self._wake.done():
            return
        if self.sleeps_on is not None and self.sleeps_on():
            self._arrived = False
        elif not self._wake.done():  # looking at it may have ended the connection
            self._wake.set_result(None)


async def connect(url: SplitResult) -> Connection:
    """A new connection; ReplicaLost if nobody answers."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_CONNECT_S):
            _, connection = await loop.create_connection(
                Connection, url.hostname or "127.0.0.1", url.port or 80
            )
    except (OSError, TimeoutError) as error:
        raise ReplicaLost("the replica can't be reached") from error
    return connection


class Generation:
    """Reads the batches of one generation from a connection, each token at once without a pacer.

    With one, units that `ripens` says no to are kept for the next batch. `heard` is called with the
    number of tokens as often as any come: progress is liveness.
    """

    def __init__(
        self,
        connection: Connection,
        pacer: Pacer | None,
        *,
        ripens: Callable[[Sequence[Unit]], bool] | None = None,
        heard: Callable[[int], None] | None = None,
    ):
        self._connection = connection
        self._pacer = pacer
        self._ripens = ripens
        self._heard = heard
        self._reader = ChunkReader()
        self._units: list[Unit] = []
        self._hurry: asyncio.TimerHandle | None = None
        if pacer is not None and ripens is not None:
            connection.sleeps_on = self._sleeps_on

    async def next(self) -> Said:
        """The next batch; the last one has a `finish`. ReplicaLost or ReplicaRefused otherwise."""
        connection, reader = self._connection, self._reader
        while True:
            await connection.more()
            if connection.status >= 300:
                await self._refuse()
            self._read_units()
            closed = connection.complete or connection.lost is not None
            if reader.done or (closed and reader.finish is not None):
                if self._hurry is not None:
                    self._hurry.cancel()  # the connection may carry another reply next
                return Said(self._take_units(), reader.finish or "abort", reader.usage)
            if closed:
                # What came last is given first; the loss shows again at the next call.
                if self._units:
                    return Said(self._take_units())
                raise ReplicaLost(connection.lost or "the stream broke off")
            if self._units and reader.finish is None:
                if self._pacer is None:
                    connection.resume()
                else:
                    connection.pause()
                    self._pacer.later(connection.read)
                return Said(self._take_units())
            if reader.finish is not None and self._hurry is None:
                # The reply is whole: its last words don't wait for figures that never come.
                loop = asyncio.get_running_loop()
                self._hurry = loop.call_later(USAGE_S, connection.fail, "no usage came")
            # Headers, half an event, or the end is near: no reason to pace.
            connection.resume()

    def _sleeps_on(self) -> bool:
        """Takes what has just come; whether that is nothing to wake anybody for."""
        connection = self._connection
        if connection.complete or connection.lost is not None or not 0 < connection.status < 300:
            return False
        new = self._read_units()
        if not new or self._reader.finish is not None or connection.lost is not None:
            return False
        assert self._pacer is not None
        assert self._ripens is not None
        if self._ripens(new):
            return False
        connection.pause()
        self._pacer.later(connection.read)
        return True

    def _read_units(self) -> list[Unit]:
        try:
            new = self._reader.read(self._connection.take_events())
        except ChunkBroken as broken:
            self._connection.fail(str(broken))
            return []
        if new:
            self._units += new
            if self._heard is not None:
                self._heard(sum([len(unit.ids) for unit in new]))
        return new

    def _take_units(self) -> tuple[Unit, ...]:
        units, self._units = tuple(self._units), []
        return units

    async def _refuse(self) -> None:
        connection = self._connection
        while not connection.complete and connection.lost is None:
            connection.resume()
            await connection.more()
        code = "refused"
        try:
            error = json.loads(connection.take_body())["error"]
            code = str(error.get("type") or error.get("code") or code)[:60]
        except (ValueError, KeyError, TypeError, AttributeError):
            pass  # the status says enough
        after = connection.headers.get(b"retry-after", b"")
        retry_after_s = float(after) if after.isdigit() else None
        raise ReplicaRefused(connection.status, code, "the replica refused", retry_after_s)
