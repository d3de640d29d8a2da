"""System prompts for administrators: their versions, who is on them, and how one is rolled out."""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse

from tertulia.core.choice import AUTO
from tertulia.core.rollout import ALL, PromptUse, Rollout, rolled_out, version_of
from tertulia.gateway.auth import AdminAsking
from tertulia.gateway.bodies import Body, read_body, schema_of
from tertulia.gateway.desk import Desk
from tertulia.gateway.footing import rollout_now
from tertulia.gateway.front import AtFront
from tertulia.gateway.moments import rfc3339
from tertulia.gateway.problems import Problem, invalid
from tertulia.gateway.texts import counted, demand_said

prompts = APIRouter(prefix="/v1/admin/prompts", tags=["administration"])

# Versions that are listed, the newest ones: who has more has lost sight of them anyway.
_LISTED: Final = 100
# Conversations of a version are counted no further: however many there are, the list is quick.
_COUNTED: Final = 10_000
# Of the smallest window a prompt of ours may take so much, or there is no room left to talk.
_WINDOW_PART: Final = 4
# Administrators who change it at the same moment take turns; so many are not at work at once.
_TRIES: Final = 5


class NewPrompt(Body):
    """The text of a system prompt."""

    text: str


class NewRollout(Body):
    """Which version is given to how many of a hundred conversations."""

    version: str = Field(min_length=1, max_length=40)
    share: int = Field(ge=0, le=ALL)


@prompts.get("", summary="List system prompts and the rollout")
async def list_(_: AdminAsking, front: AtFront) -> JSONResponse:
    """The newest first, each with how many conversations are on it."""
    desk = front.desk
    found = await desk.prompts.used(limit=_LISTED, most=_COUNTED)
    rollout = await rollout_now(desk)
    return JSONResponse(
        {"items": [_use_json(one) for one in found], "rollout": _rollout_json(rollout)}
    )


@prompts.post(
    "", summary="Add a system prompt", status_code=201, openapi_extra=schema_of(NewPrompt)
)
async def add(request: Request, _: AdminAsking, front: AtFront) -> JSONResponse:
    """Nobody is on it until it is rolled out. The same text again is the same version."""
    body = await read_body(request, NewPrompt)
    desk, text = front.desk, demand_said(body.text)
    tokens = counted(text, _most_tokens(desk), encode=desk.vocabulary(AUTO).encode)
    version = version_of(text)
    await desk.conversations.prompt_text(version, store=text)
    return JSONResponse({"version": version, "tokens": tokens}, 201)


@prompts.put(
    "/rollout", summary="Give a system prompt to a share", openapi_extra=schema_of(NewRollout)
)
async def roll_out(request: Request, _: AdminAsking, front: AtFront) -> JSONResponse:
    """New conversations follow at once, older ones when their context is next cut."""
    body = await read_body(request, NewRollout)
    desk = front.desk
    if await desk.conversations.prompt_text(body.version) is None:
        raise invalid("version", "There is no system prompt of this version; add it first.")
    for _try in range(_TRIES):
        now = await rollout_now(desk)
        to = rolled_out(now, body.version, share=body.share)
        if to is None:
            sentence = f"The version {now.version} has {now.share} of 100; give it 0 or 100 first."
            raise Problem("rollout_under_way", sentence, more={"rollout": _rollout_json(now)})
        if await desk.prompts.roll_out(now, to):
            return JSONResponse(_rollout_json(to))
    raise Problem("rollout_under_way", "Others are changing it just now; look again.")


def _most_tokens(desk: Desk) -> int:
    vocabulary = desk.vocabulary(AUTO)
    windows = [plan.window_on(vocabulary.window) for plan in desk.plans.values()]
    return min(windows) // _WINDOW_PART


def _use_json(use: PromptUse) -> dict[str, Any]:
    return {
        "version": use.version,
        "text": use.text,
        "createdAt": rfc3339(use.created_at),
        "conversations": use.conversations,
        "isWhole": use.conversations < _COUNTED,
    }


def _rollout_json(rollout: Rollout) -> dict[str, Any]:
    return {"version": rollout.version, "share": rollout.share, "base": rollout.base}
