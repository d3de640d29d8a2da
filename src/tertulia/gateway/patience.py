"""Closes connections that never finish asking, and those that do not read: uvicorn waits for ever.

Hand `PatientHttp` to uvicorn as its HTTP protocol. Bodies are bounded by `intake`.
"""

from __future__ import annotations

from asyncio import BaseTransport, TimerHandle
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Headers are one packet; a phone on a bad line needs a few seconds for it.
_HEADERS_S = 10.0
# Cookies and a key are some hundred bytes; what is read at once may be longer and still pass.
_HEADERS_BYTES = 65_536
# What a client does not take waits in the kernel and then here; so long may it not take any of it.
# A cut reader goes on from its last event; one timer for a full buffer, and none for each write.
_UNREAD_S = 30.0
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)


class PatientHttp(HttpToolsProtocol):
    """uvicorn's protocol with bounds on the time and the bytes until a request's headers end, and
    on the time that a full write buffer stays full."""

    headers_s = _HEADERS_S
    unread_s = _UNREAD_S

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiting: TimerHandle | None = None
        self._unread: TimerHandle | None = None
        self._head_bytes = 0

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(cast("Any", transport))
        # A socket that never says a word is bounded too.
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._taken()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        # Not `close`, which would wait for the client to read the rest.
        self._unread = self.loop.call_later(self.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._taken()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._waiting is None:
            return
        self._head_bytes += len(data)
        if self._head_bytes > _HEADERS_BYTES:
            if not self.transport.is_closing():
                self.transport.write(_TOO_LARGE)
            self._give_up()

    def on_message_begin(self) -> None:
        self._wait()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(self.headers_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        self._head_bytes = 0

    def _taken(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _give_up(self) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            self.transport.close()
