"""The planner for administrators: a plan for what they ask, and how a busy hour on it would go.

Nothing is reckoned here; that is behind the port, away from the streams of this gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter
from pydantic import Field, StringConstraints
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Send

from tertulia.gateway.auth import AdminAsking
from tertulia.gateway.bodies import Body, read_body, schema_of
from tertulia.gateway.caller import Caller
from tertulia.gateway.desk import Desk
from tertulia.gateway.following import seat_for
from tertulia.gateway.front import AtFront
from tertulia.gateway.operations import AdminStream, disconnected, event, write
from tertulia.gateway.problems import Problem, invalid
from tertulia.gateway.streams import Seat
from tertulia.ports_of_planning import (
    Busy,
    CantPlan,
    Conditions,
    PlanWish,
    Played,
    Progress,
    Scenario,
)

planning = APIRouter(prefix="/v1/admin", tags=["administration"])

# So often it is looked whether the gateway leaves, or who watches is signed out.
_LOOK_S: Final = 1.0
_BUSY_RETRY_S: Final = 5
# More than there are inputs that anybody would give.
_MOST_GIVEN: Final = 100

Name = Annotated[str, StringConstraints(min_length=1, max_length=60)]
Made = TypeVar("Made")


class PlanBody(Body):
    """Inputs and figures by the planner's names; what is left out is as the planner assumes."""

    values: dict[Name, float] = Field(default_factory=dict, max_length=_MOST_GIVEN)
    words: dict[Name, Name] = Field(default_factory=dict, max_length=_MOST_GIVEN)

    @property
    def wish(self) -> PlanWish:
        """As the planner takes it."""
        return PlanWish(self.values, self.words)


class SimulationBody(PlanBody):
    """The same, how many times its peak the fleet is asked, and which policies are on."""

    load: float = Field(1.0, ge=0.1, le=10)
    ladder: bool = True
    paid_first: bool = True
    door: bool = True


@planning.post("/plan", summary="Size a fleet", openapi_extra=schema_of(PlanBody))
async def plan(request: Request, _: AdminAsking, front: AtFront) -> JSONResponse:
    """Replicas, cost and what binds for what is asked, with curves: the same as `tertulia plan`."""
    body = await read_body(request, PlanBody)
    return JSONResponse(_taken(await front.desk.planning.plan(body.wish)))


@planning.post(
    "/simulation",
    summary="Play a busy hour on a planned fleet",
    openapi_extra=schema_of(SimulationBody),
)
async def simulation(request: Request, caller: AdminAsking, front: AtFront) -> Response:
    """Server-sent events: `progress`, and last `told` or `fail`. It is one of the caller's open
    streams; one is played at a time, and it ends when nobody reads it."""
    body, desk = await read_body(request, SimulationBody), front.desk
    conditions = Conditions(body.load, body.ladder, body.paid_first, body.door)
    scenario = _taken(await desk.planning.scenario(body.wish, conditions))
    async with seat_for(desk, caller) as seat:
        return SimulationStream(desk, caller, seat, scenario)


class SimulationStream(AdminStream):
    """A simulation: it lasts until its end, the client's, or this gateway's, whichever is first."""

    def __init__(self, desk: Desk, caller: Caller, seat: Seat, scenario: Scenario) -> None:
        super().__init__(desk, caller, seat)
        self._scenario = scenario

    async def _events(self, receive: Receive, send: Send) -> None:
        async with asyncio.TaskGroup() as tasks:
            parts = (
                tasks.create_task(self._play(send)),
                tasks.create_task(self._is_over()),
                tasks.create_task(disconnected(receive)),
            )
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in parts:
                part.cancel()

    async def _play(self, send: Send) -> None:
        async with aclosing(self._desk.planning.play(self._scenario)) as news:
            async for one in news:
                await write(send, _event_of(one))

    async def _is_over(self) -> None:
        """Returns when this gateway leaves, or who asked may not read any more."""
        streams = self._desk.streams
        while not streams.draining and streams.may_listen(self._caller):
            await self._desk.clock.sleep(_LOOK_S)


def _taken(made: Made | CantPlan | Busy) -> Made:
    if isinstance(made, CantPlan):
        raise invalid("values", made.why)
    if isinstance(made, Busy):
        sentence = "A plan or a simulation of others is being computed here; try again."
        raise Problem("too_many_requests", sentence, retry_after_s=_BUSY_RETRY_S)
    return made


def _event_of(news: Progress | Played | CantPlan | Busy) -> bytes:
    match news:
        case Progress(share):
            return event("progress", {"share": share})
        case Played(document):
            return event("told", _told_json(document))
        case CantPlan(why):
            return event("fail", {"code": "invalid_request", "message": why})
        case Busy():
            sentence = "Another simulation is played here; try again when it has ended."
            return event("fail", {"code": "too_many_requests", "message": sentence})


def _told_json(told: Mapping[str, Any]) -> dict[str, Any]:
    groups = [_group_json(name, one) for name, one in sorted(told["groups"].items(), reverse=True)]
    return {
        "seconds": told["seconds"],
        "warmSeconds": told["warm_s"],
        "accelerators": told["accelerators"],
        "inUse": round(told["in_use"], 4),
        "rungChanges": told["rung_changes"],
        "groups": groups,
        "points": [[round(value, 3) for value in point] for point in told["points"]],
    }


def _group_json(name: str, group: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "messages": group["messages"],
        "timedOut": round(group["timed_out"], 5),
        "refused": round(group["refused"], 5),
        "small": round(group["small"], 5),
        "short": round(group["short"], 5),
        "waitP50Seconds": round(group["wait_p50_s"], 3),
        "waitP95Seconds": round(group["wait_p95_s"], 3),
    }
