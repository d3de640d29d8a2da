"""Opens a stream for a caller: counted, timed, and ended soon after its credential dies."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import Response

from tertulia.core.types import Admitted, Repeated, Turn
from tertulia.gateway.caller import Caller
from tertulia.gateway.desk import Desk
from tertulia.gateway.follow import Resume
from tertulia.gateway.front import Front
from tertulia.gateway.problems import Problem
from tertulia.gateway.sse import EventStream, NativeRender, Render
from tertulia.gateway.streams import Seat

# How long a client with too many streams waits before it asks again.
_FULL_RETRY_S = 5


@asynccontextmanager
async def seat_for(desk: Desk, caller: Caller) -> AsyncGenerator[Seat, None]:
    """A seat for one more stream, given back if what is done with it fails.

    Problem `too_many_requests` when this user has as many streams open as allowed: before anything
    is admitted, and in one step, so that many at once are no more than one after the other.
    """
    seat = Seat(caller.user.id, desk.new_id("s"))
    limit = desk.plans[caller.user.plan].open_streams
    if not await desk.streams.take(seat, limit=limit):
        sentence = f"You have {limit} streams open already; close one first."
        raise Problem("too_many_requests", sentence, retry_after_s=_FULL_RETRY_S)
    try:
        yield seat
    except BaseException:
        desk.streams.give_back(seat)
        raise


def new_stream(
    front: Front,
    caller: Caller,
    taken: Admitted | Repeated,
    seat: Seat,
    *,
    render: Render | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The whole reply from its first event; the wait for its first text is noted."""
    native = NativeRender(front.desk.rules.retry_ms)
    asked_at = front.desk.clock.now()

    def first_text() -> None:
        now = front.desk.clock.now()
        front.figures.first_text(now - asked_at, now)

    return EventStream(
        front.desk,
        taken.turn,
        caller,
        seat,
        render=render or native,
        headers=headers,
        counts_as_followed=isinstance(taken, Admitted),
        first_text=first_text,
    )


def resumed_stream(desk: Desk, caller: Caller, turn: Turn, begin: Resume, seat: Seat) -> Response:
    """The reply from where its client goes on."""
    render = NativeRender(desk.rules.retry_ms)
    return EventStream(desk, turn, caller, seat, render=render, begin=begin)


def come_back(retry_s: float) -> Response:
    """What a resume gets in passing trouble: an error status would end an EventSource for good."""
    body = b"retry: %d\n\n" % int(retry_s * 1000)
    return Response(body, 200, {"Cache-Control": "no-store"}, "text/event-stream")


def is_resume(request: Request) -> bool:
    """Whether the request follows a reply, so that its client may be a browser's EventSource."""
    return request.method == "GET" and request.url.path.endswith("/stream")
