"""One streamed generation over one connection: the token path from replica to worker.

Reads are paced: after the first text, which passes at once, the socket is read once per pace, so
that one system call, one parse and one append serve several tokens.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast
from urllib.parse import SplitResult

import httptools

from tertulia.backends.replicas.chunks import ChunkBroken, ChunkReader
from tertulia.core.types import GenerateRequest, Said, Unit
from tertulia.ports import ReplicaLost, ReplicaRefused

# Enough for an error body or several hundred chunks between two paced reads.
_BUFFER_BYTES = 4_000_000
_HEADERS_BYTES = 65_536
# The usage follows the finish in the same write, or in the next one.
USAGE_S = 1.0
_CONNECT_S = 2.0
_EVENT_END = b"\n\n"
_DATA = b"data: "


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection that carries one response at a time.

    `fail` ends it from outside: the reader then gets ReplicaLost instead of waiting.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._wake: asyncio.Future[None] | None = None
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

    def data_received(self, data: bytes) -> None:
        if self._parser is None or len(self._body) > _BUFFER_BYTES:
            self.fail("the replica sent more than was asked")
            return
        assert self._transport is not None
        self._transport.pause_reading()
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
        self.status, self.complete, self.reusable = 0, False, False
        self._arrived = False
        self._head_bytes = 0
        self._body.clear()
        self.headers = {}
        self._transport.resume_reading()
        self._transport.write(request)

    def resume(self) -> None:
        """Takes what has come since the last read."""
        if self._transport is not None and not self.complete:
            self._transport.resume_reading()

    def rest(self) -> None:
        """Waits for its next request; while it reads, it hears that the replica has closed it."""
        self._parser = None
        if self._transport is not None:
            self._transport.resume_reading()

    async def more(self) -> None:
        """Waits for bytes, the end of the response or the loss of the connection."""
        self._wake = asyncio.get_running_loop().create_future()
        # Bytes may have come since the last call: reading is paused then, and nothing else comes.
        if not self._arrived and self._lost is None and not self.complete:
            await self._wake
        self._arrived = False

    def take_events(self) -> list[bytes]:
        """The whole events that have come; the rest stays."""
        end = self._body.rfind(_EVENT_END)
        if end < 0:
            return []
        whole = bytes(self._body[:end])
        del self._body[: end + len(_EVENT_END)]
        return whole.split(_EVENT_END)

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
        if self._wake is not None and not self._wake.done():
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


def request_bytes(
    url: SplitResult,
    key: str | None,
    request: GenerateRequest,
    *,
    priorities: bool,
    own_engine: bool,
) -> bytes:
    """The completion request as one HTTP message."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": request.model,
        "prompt": request.prompt,
        "max_tokens": request.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "cache_salt": request.cache_salt,
    }
    if priorities:
        body["priority"] = request.priority
    if own_engine:
        body["cache_shared_tokens"] = request.shared_tokens
        if request.session_id is not None:
            body["session_id"] = request.session_id
    if sampling.seed is not None:
        body["seed"] = sampling.seed
    payload = json.dumps(body, separators=(",", ":")).encode()
    lines = [
        f"POST {url.path.rstrip('/')}/v1/completions HTTP/1.1",
        f"Host: {url.netloc}",
        "Content-Type: application/json",
        f"Content-Length: {len(payload)}",
        f"X-Request-Id: {request.request_id}",
        *(f"{name}: {value}" for name, value in bearer(key).items()),
    ]
    assert not any("\r" in line or "\n" in line for line in lines), "a header can't hold a line end"
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + payload


def bearer(key: str | None) -> dict[str, str]:
    """The header that shows a replica's key, where it has one."""
    return {"Authorization": f"Bearer {key}"} if key else {}


class Generation:
    """Reads the paced batches of one generation from a connection.

    `progressed_at` is the loop time of the last token: progress is liveness.
    """

    def __init__(self, connection: Connection, *, pace_s: float):
        self._connection = connection
        self._pace_s = pace_s
        self._reader = ChunkReader()
        self._loop = asyncio.get_running_loop()
        self._hurry: asyncio.TimerHandle | None = None
        self.progressed_at = self._loop.time()

    async def next(self) -> Said:
        """The next batch; the last one has a `finish`. ReplicaLost or ReplicaRefused otherwise."""
        connection, reader = self._connection, self._reader
        units: tuple[Unit, ...] = ()
        while True:
            await connection.more()
            if connection.status >= 300:
                await self._refuse()
            units += self._read_units()
            closed = connection.complete or connection.lost is not None
            if reader.done or (closed and reader.finish is not None):
                if self._hurry is not None:
                    self._hurry.cancel()  # the connection may carry another reply next
                return Said(units, reader.finish or "abort", reader.usage)
            if closed:
                # What came last is given first; the loss shows again at the next call.
                if units:
                    return Said(units)
                raise ReplicaLost(connection.lost or "the stream broke off")
            if units and reader.finish is None:
                self.progressed_at = self._loop.time()
                self._loop.call_later(self._pace_s, connection.resume)
                return Said(units)
            if reader.finish is not None and self._hurry is None:
                # The reply is whole: its last words don't wait for figures that never come.
                self._hurry = self._loop.call_later(USAGE_S, connection.fail, "no usage came")
            # Headers, half an event, or the end is near: no reason to pace.
            connection.resume()

    def _read_units(self) -> tuple[Unit, ...]:
        units = []
        try:
            for event in self._connection.take_events():
                if event.startswith(_DATA):
                    unit = self._reader.read(event[len(_DATA) :])
                    if unit is not None:
                        units.append(unit)
        except ChunkBroken as broken:
            self._connection.fail(str(broken))
        return tuple(units)

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
