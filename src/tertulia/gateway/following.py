"""Opens a stream for a caller: counted, timed, and ended soon after its credential dies."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tertulia.core.types import Turn
from tertulia.gateway.auth import still_valid
from tertulia.gateway.caller import Caller
from tertulia.gateway.desk import Desk
from tertulia.gateway.figures import Figures
from tertulia.gateway.follow import Resume
from tertulia.gateway.front import Front
from tertulia.gateway.problems import Problem
from tertulia.gateway.sse import EventStream, NativeRender, Render
from tertulia.ports import Clock

# How long a client with too many streams waits before it asks again.
_FULL_RETRY_S = 5
# What a first text looks like, in our own events and in OpenAI's chunks.
_TEXT_MARKS = (b"\nevent: delta\n", b'"delta":{"content":')


def demand_room(desk: Desk, caller: Caller) -> None:
    """Problem `too_many_requests` when this user has as many streams open as allowed."""
    limit = desk.rules.streams_per_user
    if desk.streams.count(caller.user.id) >= limit:
        sentence = f"You have {limit} streams open already; close one first."
        raise Problem("too_many_requests", sentence, retry_after_s=_FULL_RETRY_S)


def new_stream(
    front: Front,
    caller: Caller,
    turn: Turn,
    *,
    render: Render | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The whole reply from its first event; the wait for its first text is noted.

    Problem when there is no room for it: others may have opened while the turn was taken.
    """
    demand_room(front.desk, caller)
    native = NativeRender(front.desk.rules.retry_ms)
    stream = EventStream(
        front.desk,
        turn,
        render=render or native,
        headers=headers,
        allowed=partial(still_valid, front.desk, caller),
    )
    return _Timed(stream, front.figures, front.desk.clock)


def resumed_stream(desk: Desk, caller: Caller, turn: Turn, begin: Resume) -> Response:
    """The reply from where its client goes on."""
    return EventStream(
        desk,
        turn,
        render=NativeRender(desk.rules.retry_ms),
        begin=begin,
        allowed=partial(still_valid, desk, caller),
    )


def come_back(retry_s: float) -> Response:
    """What a resume gets in passing trouble: an error status would end an EventSource for good."""
    body = b"retry: %d\n\n" % int(retry_s * 1000)
    return Response(body, 200, {"Cache-Control": "no-store"}, "text/event-stream")


def is_resume(request: Request) -> bool:
    """Whether the request follows a reply, so that its client may be a browser's EventSource."""
    return request.method == "GET" and request.url.path.endswith("/stream")


class _Timed(Response):
    """Notes when the first text leaves and is then out of the way."""

    def __init__(self, stream: Response, figures: Figures, clock: Clock):
        self._stream = stream
        self._figures = figures
        self._clock = clock
        self._asked_at = clock.now()
        self.background = None
        self.status_code = stream.status_code
        self.raw_headers = stream.raw_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        waiting = True

        def watched(message: Message) -> Awaitable[None]:
            nonlocal waiting
            if waiting and any(mark in message.get("body", b"") for mark in _TEXT_MARKS):
                waiting = False
                self._figures.first_text(self._clock.now() - self._asked_at)
            return send(message)

        await self._stream(scope, receive, watched)
