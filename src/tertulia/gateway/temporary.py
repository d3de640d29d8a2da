"""Temporary chat: the client keeps the conversation and sends all of it with each message.

The turn is stored as any other, so that it can be followed, stopped and asked for again; some
minutes after its end, or when its owner says so, nothing is left of it but the figures.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from tertulia.core.types import PromptMessage
from tertulia.gateway.admit import StatelessAsk
from tertulia.gateway.auth import Asking
from tertulia.gateway.bodies import Body, body_sha, read_body, schema_of
from tertulia.gateway.front import AtFront
from tertulia.gateway.problems import Problem, invalid, not_found
from tertulia.gateway.stop import stop_reply
from tertulia.gateway.turnposts import answer_post, demand_key

temporary = APIRouter(prefix="/v1/temporary", tags=["temporary chat"])

# The window of any plan is full sooner.
_MESSAGES = 2_000
# Each try loses only to somebody who asks for the same failed turn again at that moment.
_TRIES = 3
_RETRY_S = 1


class Said(Body):
    """One message of the chat so far."""

    role: Literal["user", "assistant"]
    content: str = Field(min_length=1)


class TemporaryMessage(Body):
    """The whole chat, oldest first; the last message is the one to be answered."""

    # The first wrong one is enough: a long list took seconds to refuse item by item.
    messages: Annotated[list[Said], Field(min_length=1, max_length=_MESSAGES, fail_fast=True)]
    model: str = Field(default="auto", min_length=1, max_length=200)


@temporary.post(
    "/messages",
    summary="Send a message of a chat that is not kept",
    openapi_extra=schema_of(TemporaryMessage),
)
async def post(request: Request, caller: Asking, front: AtFront) -> Response:
    """Streams the reply, or answers 202 and where to follow it. Needs an Idempotency-Key."""
    key = demand_key(request)
    body = await read_body(request, TemporaryMessage)
    if body.messages[-1].role != "user":
        raise invalid("messages", "The last message must be the user's.")
    if body.messages[-1].content.isspace():
        raise invalid("messages", "The message is empty.")
    messages = tuple(PromptMessage(said.role, said.content) for said in body.messages)
    _demand_order(front, body.model, messages)
    meaning = [[message.role, message.content] for message in messages]
    sha = body_sha({"temporary": meaning, "model": body.model})
    ask = StatelessAsk(messages, body.model, key, sha, begins="instructed")
    return await answer_post(request, front, caller, ask)


@temporary.delete("/messages/{temporary_id}", summary="Forget a reply now", status_code=204)
async def forget(temporary_id: str, caller: Asking, front: AtFront) -> Response:
    """Stops it and deletes all of it but the figures; its key is free again."""
    desk, owner = front.desk, caller.user.id
    for _ in range(_TRIES):
        turn = await desk.turns.find(owner, temporary_id)
        if turn is None or turn.kind != "stateless":
            raise not_found()
        await stop_reply(desk, owner, temporary_id, "deleted")
        if await desk.loose.delete(owner, temporary_id) is not None:
            return Response(status_code=204)
    raise Problem("busy", "This message is being asked for again.", retry_after_s=_RETRY_S)


def _demand_order(front: AtFront, model: str, messages: tuple[PromptMessage, ...]) -> None:
    """Problem where the model's template can't show roles in this order."""
    try:
        front.desk.vocabulary(model).render(messages)
    except ValueError:
        sentence = "The model can't take messages with roles in this order."
        raise invalid("messages", sentence) from None
