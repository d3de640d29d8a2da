"""The fleet for administrators: one look, a stream of looks, and replicas that are set aside.

Figures of the fleet alone are shown here: no user, no conversation, no text.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from tertulia.core.fleet import ReplicaSight
from tertulia.core.ladder import RUNGS
from tertulia.core.money import Prices, per_hour, per_million
from tertulia.core.recent import Percentiles
from tertulia.core.types import Lane
from tertulia.gateway.auth import AdminAsking
from tertulia.gateway.bodies import Body, read_body, schema_of
from tertulia.gateway.caller import Caller
from tertulia.gateway.desk import Desk
from tertulia.gateway.following import seat_for
from tertulia.gateway.front import AtFront
from tertulia.gateway.moments import rfc3339
from tertulia.gateway.problems import Problem, invalid
from tertulia.gateway.pulse import BEAT_S, Point, Pulse
from tertulia.gateway.sse import HEADERS
from tertulia.gateway.streams import Seat
from tertulia.ports import StoreUnavailable

operations = APIRouter(prefix="/v1/admin", tags=["administration"])

# So often it is looked whether who watches is an administrator still: about every ten seconds.
_ROLE_BEATS: Final = 5
# A page that is left open over night begins anew now and then, at whatever gateway has room.
_BEATS: Final = 1800


class NamedReplica(Body):
    """The replica that is meant."""

    replica: str = Field(min_length=1, max_length=200)


@operations.get("/fleet", summary="How the fleet is now")
async def fleet(_: AdminAsking, front: AtFront) -> JSONResponse:
    """As this gateway last saw it, two seconds ago at most."""
    return JSONResponse(now_json(front.desk))


@operations.get("/live", summary="Follow how the fleet is")
async def live(caller: AdminAsking, front: AtFront) -> Response:
    """Server-sent events: `past` once, then `now` every two seconds. It is one of the caller's open
    streams, and ends when they are no administrator any more."""
    desk = front.desk
    async with seat_for(desk, caller) as seat:
        return LiveStream(desk, caller, seat)


@operations.post(
    "/drain",
    summary="Give a replica no new work",
    status_code=204,
    openapi_extra=schema_of(NamedReplica),
)
async def drain(request: Request, _: AdminAsking, front: AtFront) -> Response:
    """What runs there goes on to its end. Nothing new comes within two seconds, from any worker."""
    body = await read_body(request, NamedReplica)
    if body.replica not in {sight.name for sight in front.desk.pulse.sights}:
        raise invalid("replica", "No replica of this name is known here.")
    if not await front.desk.holds.hold(body.replica):
        raise Problem("too_many_requests", "Too many replicas are set aside.", retry_after_s=60)
    return Response(status_code=204)


@operations.post(
    "/undrain",
    summary="Give a replica work again",
    status_code=204,
    openapi_extra=schema_of(NamedReplica),
)
async def undrain(request: Request, _: AdminAsking, front: AtFront) -> Response:
    """Also one that is not there at the moment; for one that was not set aside nothing changes."""
    body = await read_body(request, NamedReplica)
    await front.desk.holds.let_go(body.replica)
    return Response(status_code=204)


class AdminStream(Response):
    """Events on a seat of the administrator's: what `_events` sends, between the head and the end
    of the answer."""

    def __init__(self, desk: Desk, caller: Caller, seat: Seat) -> None:
        super().__init__(None, 200, HEADERS)
        del self.headers["content-length"]  # a stream has none
        self._desk = desk
        self._caller = caller
        self._seat = seat

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        with self._desk.streams.running(self._seat, self._caller):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._events(receive, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self, receive: Receive, send: Send) -> None:
        raise NotImplementedError


class LiveStream(AdminStream):
    """The looks at the fleet, until its end or the client's."""

    async def _events(self, receive: Receive, send: Send) -> None:
        async with asyncio.TaskGroup() as tasks:
            gone = tasks.create_task(disconnected(receive))
            await self._looks(send, gone)
            gone.cancel()

    async def _looks(self, send: Send, gone: asyncio.Task[None]) -> None:
        desk, pulse = self._desk, self._desk.pulse
        await write(send, b"retry: %d\n\n" % desk.rules.retry_ms)
        await write(send, event("past", past_json(desk)))
        for beat in range(_BEATS):
            if gone.done() or not await self._may_watch(beat):
                break
            seen = pulse.n_beats
            await write(send, event("now", now_json(desk)))
            await pulse.wait(seen)

    async def _may_watch(self, beat: int) -> bool:
        streams = self._desk.streams
        if streams.draining or not streams.may_listen(self._caller):
            return False
        if beat % _ROLE_BEATS or not beat:
            return True
        try:
            user = await self._desk.accounts.find(self._caller.user.id)
        except StoreUnavailable:
            return True  # `may_listen` ends it when that lasts
        return user is not None and user.role == "admin" and not user.disabled


def now_json(desk: Desk) -> dict[str, Any]:
    """The fleet as this gateway last saw it."""
    now, pulse, lookout = desk.clock.now(), desk.pulse, desk.lookout
    load = lookout.load
    return {
        "at": rfc3339(now),
        "replicas": [_sight_json(one, pulse.rates.get(one.name)) for one in pulse.sights],
        "lanes": [_lane_json(desk, lane) for lane in Lane],
        "ladder": {
            "rung": lookout.foothold.rung,
            "name": RUNGS[lookout.foothold.rung],
            "heldSeconds": round(lookout.foothold.held_s, 1),
            "changes": lookout.foothold.changes,
            "load": None if load is None else [round(share, 3) for share in load.on_rung],
        },
        "firstText": _percentiles_json(desk.figures.first_texts.percentiles(now)),
        "betweenTokens": _percentiles_json(desk.figures.gaps.percentiles(now)),
        "openStreams": len(desk.streams),
        "costs": None if desk.rules.prices is None else _costs_json(desk.rules.prices, pulse),
        "flagged": [
            {"stage": stage, "category": category, "count": count}
            for (stage, category), count in sorted(desk.flags.counts.items())
        ],
        "point": _point_json(pulse.past[-1]) if pulse.past else None,
    }


def past_json(desk: Desk) -> dict[str, Any]:
    """The looks of the last half hour, and when which rung began to hold."""
    return {
        "everySeconds": BEAT_S,
        "points": [_point_json(point) for point in desk.pulse.past],
        "steps": [
            {"at": rfc3339(step.at), "rung": step.rung, "name": RUNGS[step.rung]}
            for step in desk.pulse.steps
        ],
    }


def _costs_json(prices: Prices, pulse: Pulse) -> dict[str, Any]:
    """What is there costs, busy or not; a replica that is lost may be paid no more."""
    hour = per_hour(prices, (one.model for one in pulse.sights if one.state != "lost"))
    rate = pulse.tokens_per_s
    return {
        "perHour": round(hour, 4),
        "perMillion": None if rate is None else _rounded(per_million(hour, rate), 4),
        "targetPerMillion": prices.target,
    }


def _sight_json(sight: ReplicaSight, tokens_per_s: float | None) -> dict[str, Any]:
    return {
        "name": sight.name,
        "model": sight.model,
        "engine": sight.engine,
        "state": sight.state,
        "message": sight.message or None,
        "slots": sight.slots,
        "running": sight.running,
        "owedTokens": sight.owed_tokens,
        "tokensPerSecond": _rounded(tokens_per_s, 1),
        "prefillPerSecond": _rounded(sight.prefill_per_s, 1),
        "gapSeconds": _rounded(sight.gap_s, 4),
        "cacheUsed": _rounded(sight.cache_used_share, 3),
        "cacheHits": _rounded(sight.cache_hit_share, 3),
    }


def _lane_json(desk: Desk, lane: Lane) -> dict[str, Any]:
    state = desk.line.lane(lane)
    return {
        "name": lane.name.lower(),
        "queued": state.queued,
        "running": state.running,
        "waitSeconds": round(desk.line.newcomer_wait_s(lane), 1) if lane.is_chat else None,
    }


def _point_json(point: Point) -> list[float | None]:
    """A row, as there are hundreds: milliseconds since 1970, then in the order of `Point`."""
    return [
        int(point.at * 1000),
        point.queued,
        point.running,
        _rounded(point.tokens_per_s, 1),
        _rounded(point.first_text_s, 3),
        _rounded(point.gap_s, 4),
        point.rung,
        _rounded(point.load, 3),
    ]


def _percentiles_json(found: Percentiles) -> dict[str, Any]:
    return {
        "count": found.n,
        "p50": _rounded(found.p50, 4),
        "p95": _rounded(found.p95, 4),
        "p99": _rounded(found.p99, 4),
    }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def event(kind: str, data: dict[str, Any]) -> bytes:
    """A server-sent event without a number."""
    return b"event: %b\ndata: %b\n\n" % (
        kind.encode(),
        json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode(),
    )


async def write(send: Send, data: bytes) -> None:
    """A part of a stream."""
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def disconnected(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
