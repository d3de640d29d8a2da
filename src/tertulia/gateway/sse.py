"""A reply as server-sent events: a bare ASGI response on the token path.

Every event is written in one piece and comes from the log; a client that does not read is cut
and resumes. Model text is only ever inside JSON, so it can't forge an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tertulia.core.turn import frame
from tertulia.core.types import Entry, Turn
from tertulia.gateway.desk import Desk
from tertulia.gateway.follow import BEGINNING, Gone, Reset, Resume, follow_answer
from tertulia.ports import StoreUnavailable

HEADERS: Final[Mapping[str, str]] = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    # Proxies that buffer would hold the whole answer back.
    "x-accel-buffering": "no",
}
_PING: Final = b": ping\n\n"
# A credential that died (logout, disabled account) ends its streams within this time.
_RECHECK_S: Final = 3.0


class Render(Protocol):
    """How events look on the wire: our own, or OpenAI's chunks."""

    def start(self) -> bytes: ...
    def entries(self, entries: Sequence[Entry]) -> bytes: ...
    def reset(self, reason: str) -> bytes: ...
    def broken(self) -> bytes:
        """What ends a stream that can't be finished here: the client may come back."""


class NativeRender:
    """The events of the contract, byte for byte as the log has them."""

    def __init__(self, retry_ms: int):
        self._retry = b"retry: %d\n\n" % retry_ms

    def start(self) -> bytes:
        return self._retry

    def entries(self, entries: Sequence[Entry]) -> bytes:
        if len(entries) == 1:
            return frame(entries[0])
        return b"".join(map(frame, entries))

    def reset(self, reason: str) -> bytes:
        # Only words of ours come here; it carries no id, the next event begins again at 1.
        return b'event: reset\ndata: {"reason":"%b"}\n\n' % reason.encode()

    def broken(self) -> bytes:
        return self._retry


class EventStream(Response):
    """Follows a turn until its end, the client's end, or the gateway's.

    `allowed` is asked every few seconds whether the client may still listen.
    """

    def __init__(
        self,
        desk: Desk,
        turn: Turn,
        *,
        render: Render,
        begin: Resume = BEGINNING,
        headers: Mapping[str, str] | None = None,
        allowed: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        super().__init__(None, 200, {**HEADERS, **(headers or {})})
        # A stream has no length; Response has added one for an empty body.
        del self.headers["content-length"]
        self._desk = desk
        self._turn = turn
        self._render = render
        self._begin = begin
        self._allowed = allowed

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        desk, turn = self._desk, self._turn
        desk.streams.opened(turn.owner, turn.reply_id)
        try:
            async with asyncio.TaskGroup() as tasks:
                gone = tasks.create_task(_disconnected(receive))
                try:
                    await self._stream(send, gone)
                finally:
                    gone.cancel()
        finally:
            desk.streams.closed(turn.owner, turn.reply_id)
            await _mark_followed(desk, turn)

    async def _stream(self, send: Send, gone: asyncio.Task[None]) -> None:
        desk = self._desk
        await _mark_followed(desk, self._turn)
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        opening = self._render.start()
        if self._begin.reset:
            opening += self._render.reset("attempt")
        await self._send(send, opening)
        try:
            await self._follow(send, gone)
        except StoreUnavailable:
            await self._send(send, self._render.broken())
        except TimeoutError:
            return  # the client does not read: it is cut, and resumes from its last id
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _follow(self, send: Send, gone: asyncio.Task[None]) -> None:
        desk, render, begin = self._desk, self._render, self._begin
        wrote_at = checked_at = desk.clock.now()
        batches = follow_answer(desk, self._turn, after=begin.after, attempt=begin.attempt)
        async with aclosing(batches):
            async for batch in batches:
                if gone.done():
                    return
                now = desk.clock.now()
                if desk.streams.draining or isinstance(batch, Gone):
                    await self._send(send, render.broken())
                    return
                if self._allowed is not None and now - checked_at >= _RECHECK_S:
                    checked_at = now
                    if not await self._allowed():
                        # Said, not just ended: OpenAI's clients take a bare end for success.
                        await self._send(send, render.broken())
                        return
                if isinstance(batch, Reset):
                    data = render.reset(batch.reason)
                elif batch:
                    data = render.entries(batch)
                elif now - wrote_at >= desk.rules.ping_s:
                    data = _PING
                else:
                    continue
                if data:
                    await self._send(send, data)
                    wrote_at = now

    async def _send(self, send: Send, data: bytes) -> None:
        """One write of whole events; TimeoutError when the client does not take it."""
        async with asyncio.timeout(self._desk.rules.write_timeout_s):
            await send({"type": "http.response.body", "body": data, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _mark_followed(desk: Desk, turn: Turn) -> None:
    """The grace of an unfollowed reply counts from the last moment that somebody listened."""
    if turn.status.is_final:
        return
    try:
        await desk.presence.seen([turn.reply_id])
    except StoreUnavailable:
        return  # the beat comes again
