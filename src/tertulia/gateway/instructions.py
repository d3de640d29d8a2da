"""A person's own instructions over HTTP: what the model is told in each of their conversations."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tertulia.core.choice import AUTO
from tertulia.core.opening import InstructionsVersion, asked, most_instructions
from tertulia.gateway.auth import Asking
from tertulia.gateway.bodies import Body, read_body, schema_of
from tertulia.gateway.caller import Caller
from tertulia.gateway.desk import Desk
from tertulia.gateway.front import AtFront
from tertulia.gateway.moments import rfc3339
from tertulia.gateway.problems import Problem
from tertulia.gateway.texts import counted, demand_said
from tertulia.ports import Vocabulary

instructions = APIRouter(prefix="/v1/me/instructions", tags=["account"])


class NewInstructions(Body):
    """What the model is to keep to in every conversation that begins from now on."""

    text: str


@instructions.get("", summary="Your own instructions")
async def get(caller: Asking, front: AtFront) -> JSONResponse:
    """As they are now, and how many tokens they may have; an empty text if there are none."""
    current = await front.desk.instructions.current(caller.user.id)
    return JSONResponse(_json(current, _limit(front.desk, caller)))


@instructions.put(
    "", summary="Write your own instructions", openapi_extra=schema_of(NewInstructions)
)
async def put(request: Request, caller: Asking, front: AtFront) -> JSONResponse:
    """New conversations keep to them at once, older ones from when their context is next cut."""
    body = await read_body(request, NewInstructions)
    desk, text = front.desk, demand_said(body.text)
    vocabulary, limit = _vocabulary(desk), _limit(desk, caller)
    tokens = counted(asked(text), limit, encode=vocabulary.encode)
    verdict = await desk.checks.check_input(text)
    if verdict.flagged:
        more = {"category": verdict.category}
        raise Problem("invalid_request", verdict.text, field="text", more=more)
    written = await desk.instructions.write(
        caller.user.id, text, tokens=tokens, tokenizer=vocabulary.name
    )
    return JSONResponse(_json(written, limit))


@instructions.delete("", summary="Delete your own instructions", status_code=204)
async def delete(caller: Asking, front: AtFront) -> Response:
    """Every version, at once: older conversations go on without them, too."""
    await front.desk.instructions.forget(caller.user.id)
    return Response(status_code=204)


def _vocabulary(desk: Desk) -> Vocabulary:
    return desk.vocabulary(AUTO)


def _limit(desk: Desk, caller: Caller) -> int:
    plan = desk.plans[caller.user.plan]
    return most_instructions(plan.window_on(_vocabulary(desk).window))


def _json(told: InstructionsVersion | None, limit: int) -> dict[str, Any]:
    return {
        "text": "" if told is None else told.text,
        "version": None if told is None else told.version,
        "tokens": 0 if told is None else told.tokens,
        "limit": limit,
        "writtenAt": None if told is None else rfc3339(told.written_at),
    }
