"""One connection to a Valkey server: commands go out together, answers come back in order.

An answer belongs to the command at its place in the order and to nobody else: a caller that left
keeps its place, so that its answer is thrown away and not given to the next.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

import hiredis

# Commands under way at once: several seconds of a full worker's appends. Who comes after is told.
IN_FLIGHT: Final = 10_000
# What the server has not taken yet; a reply is some kilobytes, so this is thousands of them.
BUFFER_BYTES: Final = 16 * 1024 * 1024
# How often answers that are late are looked for: one timer for all instead of one each.
_LOOK_S: Final = 0.05
# One may be late because our own loop was; two in a row are not.
_PINGS_UNHEARD: Final = 2


class ConnectionLost(Exception):
    """The connection broke: whether the command was carried out is not known."""


class NoAnswer(Exception):
    """The answer did not come in time: whether the command was carried out is not known."""


class TooMuchWaits(Exception):
    """The server is behind: the command was not sent."""


class Connection(asyncio.Protocol):
    """RESP2, pipelined. It breaks when the oldest command has had no answer for `patience_s`;
    `on_lost` is called once, when it is over."""

    def __init__(self, *, patience_s: float, on_lost: Callable[[Connection], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._patience_s = patience_s
        self._on_lost: Callable[[Connection], None] | None = on_lost
        self._on_push: Callable[[Connection, Any], None] | None = None
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[asyncio.Future[Any], float, float]] = deque()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._looking = False
        self._flushing = False
        self.lost: str | None = None
        self._unheard = 0  # pings since anything arrived

    @property
    def alive(self) -> bool:
        return self._transport is not None and self.lost is None

    def send(self, packed: bytes, deadline: float) -> asyncio.Future[Any]:
        """Sends a packed command. The future has the answer (an error is a ReplyError in it), or
        ConnectionLost, or NoAnswer soon after the loop's time `deadline`."""
        self._put(packed)
        answer = self._loop.create_future()
        self._waiting.append((answer, deadline, self._loop.time()))
        if not self._looking:
            self._looking = True
            self._loop.call_later(_LOOK_S, self._look)
        return answer

    def listen(self, on_push: Callable[[Connection, Any], None]) -> None:
        """Makes it a subscriber's: from now on what arrives answers no command."""
        assert not self._waiting
        self._on_push = on_push

    def tell(self, packed: bytes) -> None:
        """Sends a subscriber's command, whose answer is pushed."""
        assert self._on_push is not None
        self._put(packed)

    def ping(self) -> None:
        """Breaks a subscriber's connection that has been silent since the last two pings."""
        if self._unheard >= _PINGS_UNHEARD:
            self.fail("the server is silent")
        elif self.alive:
            self._unheard += 1
            self.tell(_PING)

    def fail(self, why: str) -> None:
        """Ends the connection at once; everyone who waits hears of it."""
        if self.lost is not None:
            return
        self.lost = why
        if self._transport is not None:
            self._transport.abort()
        self._end()

    def _put(self, packed: bytes) -> None:
        if self.lost is not None or self._transport is None:
            raise ConnectionLost(self.lost or "not connected")
        unsent = self._out_bytes + self._transport.get_write_buffer_size()
        if len(self._waiting) >= IN_FLIGHT or unsent > BUFFER_BYTES:
            raise TooMuchWaits
        self._out.append(packed)
        self._out_bytes += len(packed)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """All that came up in one turn of the loop leaves with one write."""
        self._flushing = False
        if self.lost is not None or self._transport is None:
            return
        self._transport.write(b"".join(self._out))
        self._out.clear()
        self._out_bytes = 0

    def _look(self) -> None:
        now = self._loop.time()
        for answer, deadline, _ in self._waiting:
            if now >= deadline and not answer.done():
                answer.set_exception(NoAnswer)
        if self._waiting and now - self._waiting[0][2] >= self._patience_s:
            self.fail("the server does not answer")
        self._looking = bool(self._waiting)
        if self._looking:
            self._loop.call_later(_LOOK_S, self._look)

    def _end(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for answer, _, _ in waiting:
            if not answer.done():
                answer.set_exception(ConnectionLost(self.lost))
        on_lost, self._on_lost = self._on_lost, None
        if on_lost is not None:
            on_lost(self)

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._unheard = 0
        reader, waiting = self._reader, self._waiting
        reader.feed(data)
        try:
            while (reply := reader.gets()) is not _NOTHING:
                if self._on_push is not None:
                    self._on_push(self, reply)
                elif waiting:
                    answer = waiting.popleft()[0]
                    if not answer.done():
                        answer.set_result(reply)
                else:
                    self.fail("the server sent what nobody asked for")
                    return
        except hiredis.ProtocolError:
            self.fail("the server does not speak RESP")

    def connection_lost(self, _exc: Exception | None) -> None:
        self._transport = None
        self.fail("the server closed the connection")


_NOTHING: Final = object()
_PING: Final = b"*1\r\n$4\r\nPING\r\n"


def pack(*words: str | bytes | int | float) -> bytes:
    """A command as it goes over the wire."""
    packed = hiredis.pack_command(words)  # type: ignore[arg-type]  # typed as a tuple of one word
    assert isinstance(packed, bytes)
    return packed
