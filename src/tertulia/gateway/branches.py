"""Branches over HTTP: which one a conversation shows, and the deletion of a part of its tree."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tertulia.core.deletions import DELETIONS_BELL
from tertulia.gateway.auth import Asking
from tertulia.gateway.bodies import Body, read_body, schema_of
from tertulia.gateway.conversations import conversation_json
from tertulia.gateway.front import AtFront
from tertulia.gateway.problems import not_found
from tertulia.gateway.stop import stop_reply

branches = APIRouter(prefix="/v1", tags=["branches"])


class ShownBranch(Body):
    """A message of the branch that is to be shown."""

    message_id: str = Field(min_length=1, max_length=100)


@branches.put(
    "/conversations/{conversation_id}/head",
    summary="Show another branch",
    openapi_extra=schema_of(ShownBranch),
)
async def switch(
    request: Request, conversation_id: str, caller: Asking, front: AtFront
) -> JSONResponse:
    """Moves the head to the leaf at which the message's branch was last shown, and nothing else."""
    body = await read_body(request, ShownBranch)
    shown = await front.desk.branches.switch(caller.user.id, conversation_id, body.message_id)
    if shown is None:
        raise not_found()
    return JSONResponse({**conversation_json(shown), "headMessageId": shown.head_message_id})


@branches.delete(
    "/messages/{message_id}", summary="Delete a message and all below it", status_code=204
)
async def delete(message_id: str, caller: Asking, front: AtFront) -> Response:
    """Stops the running replies there, then deletes every copy; whoever still writes is refused."""
    desk, owner = front.desk, caller.user.id
    running = await desk.branches.running(owner, message_id)
    if running is None:
        raise not_found()
    for reply_id in running:  # frees the engine at once
        await stop_reply(desk, owner, reply_id, "deleted")
    await desk.branches.delete(owner, message_id)
    desk.bell.ring(DELETIONS_BELL)
    return Response(status_code=204)
