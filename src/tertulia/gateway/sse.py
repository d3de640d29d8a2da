"""A reply as server-sent events: a bare ASGI response on the token path.

Every event is written in one piece and comes from the log; a client that does not read is cut
and resumes. Model text is only ever inside JSON, so it can't forge an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Final, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tertulia.core.turn import frame, is_terminal
from tertulia.core.types import Entry, Turn
from tertulia.gateway.caller import Caller
from tertulia.gateway.desk import Desk
from tertulia.gateway.follow import BEGINNING, Gone, Reset, Resume, follow_answer
from tertulia.gateway.headers import body_send
from tertulia.gateway.line import Place
from tertulia.gateway.streams import Seat
from tertulia.ports import StoreUnavailable

HEADERS: Final[Mapping[str, str]] = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    # Proxies that buffer would hold the whole answer back.
    "x-accel-buffering": "no",
}
_PING: Final = b": ping\n\n"
_ID_BYTES: Final = 4


class Render(Protocol):
    """How events look on the wire: our own, or OpenAI's chunks."""

    def start(self) -> bytes: ...
    def entries(self, entries: Sequence[Entry]) -> bytes: ...
    def reset(self, reason: str) -> bytes: ...
    def place(self, place: Place) -> bytes: ...
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

    def place(self, place: Place) -> bytes:
        data = b'{"position":%d,"estimatedWaitSeconds":%d}' % (place.position, place.wait_s)
        return b"event: queue\ndata: %b\n\n" % data

    def broken(self) -> bytes:
        return self._retry


class EventStream(Response):
    """Follows a turn on a seat of its owner's until its end, the client's end, or the gateway's.

    It ends as well when its `caller` may not listen any more. `first_text` is called when the first
    text leaves. What was admitted just now `counts_as_followed` already.
    """

    def __init__(
        self,
        desk: Desk,
        turn: Turn,
        caller: Caller,
        seat: Seat,
        *,
        render: Render,
        begin: Resume = BEGINNING,
        headers: Mapping[str, str] | None = None,
        counts_as_followed: bool = False,
        first_text: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(None, 200, {**HEADERS, **(headers or {})})
        # A stream has no length; Response has added one for an empty body.
        del self.headers["content-length"]
        self._desk = desk
        self._turn = turn
        self._caller = caller
        self._seat = seat
        self._render = render
        self._begin = begin
        self._counts_as_followed = counts_as_followed
        self._has_ended = False
        self._first_text = first_text

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        desk, turn = self._desk, self._turn
        try:
            with desk.streams.running(self._seat, self._caller, turn.reply_id):
                async with asyncio.TaskGroup() as tasks:
                    gone = tasks.create_task(_disconnected(receive))
                    # In a task of its own: each event would pass through all of the application's
                    # layers, twenty of them, to wake this one.
                    streaming = tasks.create_task(self._stream(send, body_send(scope, send), gone))
                    streaming.add_done_callback(lambda _: gone.cancel())
        finally:
            if not self._has_ended:
                await _mark_followed(desk, turn)

    async def _stream(self, start: Send, send: Send, gone: asyncio.Task[None]) -> None:
        desk = self._desk
        if not self._counts_as_followed:
            await _mark_followed(desk, self._turn)
        await start({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        opening = self._render.start()
        if self._begin.reset:
            opening += self._render.reset("attempt")
        await _write(send, opening)
        try:
            await self._follow(send, gone)
        except StoreUnavailable:
            await _write(send, self._render.broken())
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _follow(self, send: Send, gone: asyncio.Task[None]) -> None:
        desk, render, begin = self._desk, self._render, self._begin
        wrote_at = desk.clock.now()
        said_at: float | None = None
        batches = follow_answer(desk, self._turn, after=begin.after, attempt=begin.attempt)
        async with aclosing(batches):
            async for batch in batches:
                if gone.done():
                    return
                now = desk.clock.now()
                may_listen = desk.streams.may_listen(self._caller)
                if desk.streams.draining or isinstance(batch, Gone) or not may_listen:
                    # Said, not just ended: OpenAI's clients take a bare end for success.
                    await _write(send, render.broken())
                    return
                if isinstance(batch, Reset):
                    data = render.reset(batch.reason)
                elif isinstance(batch, Place):
                    data = render.place(batch)
                elif batch:
                    data = render.entries(batch)
                    self._has_ended = is_terminal(batch[-1].kind)
                    n_tokens = _n_tokens(batch)
                    if n_tokens and said_at is not None:
                        desk.figures.said(now - said_at, n_tokens, now)
                    if n_tokens and self._first_text is not None:
                        self._first_text()
                        self._first_text = None
                    said_at = now if n_tokens else said_at
                elif now - wrote_at >= desk.rules.ping_s:
                    data = _PING
                else:
                    continue
                if data:
                    await _write(send, data)
                    wrote_at = now


def _n_tokens(batch: Sequence[Entry]) -> int:
    """The tokens of the batch; a text of which no token is known counts as one."""
    return sum([max(1, len(e.ids) // _ID_BYTES) for e in batch if e.kind == "delta"])


async def _write(send: Send, data: bytes) -> None:
    """One write of whole events. It waits for a client that does not read until the server cuts
    that off (`patience`); then it returns."""
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _mark_followed(desk: Desk, turn: Turn) -> None:
    """The grace of an unfollowed reply counts from the last moment that somebody listened."""
    if turn.status.is_final:
        return
    try:
        await desk.presence.seen([(turn.owner, turn.reply_id)])
    except StoreUnavailable:
        return  # the beat comes again
