"""Conversations over HTTP. Another user's conversation is answered like one that never was."""

from __future__ import annotations

from typing import Annotated, Any
from unicodedata import category

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tertulia.core.deletions import DELETIONS_BELL
from tertulia.core.types import Conversation
from tertulia.gateway.auth import Asking
from tertulia.gateway.bodies import Body, clean_text, read_body, schema_of
from tertulia.gateway.desk import Desk
from tertulia.gateway.footing import version_for_new
from tertulia.gateway.front import AtFront
from tertulia.gateway.moments import rfc3339
from tertulia.gateway.problems import invalid, not_found
from tertulia.gateway.stop import stop_reply
from tertulia.gateway.turnposts import idempotency_key

conversations = APIRouter(prefix="/v1/conversations", tags=["conversations"])

_TITLE_CHARS = 200


class NewConversation(Body):
    """An empty conversation; without a title it takes one from its first message."""

    title: str = Field(default="", max_length=_TITLE_CHARS)


class Changes(Body):
    """Only the named fields change."""

    title: str = Field(default="", max_length=_TITLE_CHARS)
    pinned: bool = False
    archived: bool = False


@conversations.post(
    "", summary="Make a conversation", status_code=201, openapi_extra=schema_of(NewConversation)
)
async def create(request: Request, caller: Asking, front: AtFront) -> JSONResponse:
    """With an Idempotency-Key, asking again gives the conversation made the first time."""
    key = idempotency_key(request)
    body = await read_body(request, NewConversation, empty=b"{}")
    desk, owner = front.desk, caller.user.id
    conversation_id = desk.new_id("c")
    version = await version_for_new(desk, conversation_id)
    made = await desk.conversations.create(owner, conversation_id, key=key, prompt_version=version)
    if made.id == conversation_id:
        desk.figures.begun(version)
    if body.title and not made.title:
        made = await desk.conversations.change(owner, made.id, {"title": body.title}) or made
    return JSONResponse(conversation_json(made), 201, {"Location": f"/v1/conversations/{made.id}"})


@conversations.get("", summary="List or search your conversations")
async def list_(
    caller: Asking,
    front: AtFront,
    cursor: Annotated[str | None, Query(max_length=400)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 30,
    q: Annotated[str, Query(max_length=200)] = "",
    archived: bool = False,
) -> JSONResponse:
    """Newest first, pinned ones before all; `nextCursor` leads to the next page.

    A search may find fewer than `limit` and still lead on: each looks through a part of the list.
    """
    if any(category(letter) == "Cc" for letter in clean_text(q, "q")):
        raise invalid("q", "The field q holds a control character.")
    try:
        page = await front.desk.conversations.list(
            caller.user.id, cursor=cursor, limit=limit, query=q, archived=archived
        )
    except ValueError:
        raise invalid("cursor", "This cursor was not made here.") from None
    items = [_listed(item) for item in page.items]
    return JSONResponse({"items": items, "nextCursor": page.next_cursor})


@conversations.get("/{conversation_id}", summary="One conversation")
async def get(conversation_id: str, caller: Asking, front: AtFront) -> JSONResponse:
    """`activeMessageId` names the reply in progress, `headMessageId` the newest message."""
    found = await front.desk.conversations.get(caller.user.id, conversation_id)
    if found is None:
        raise not_found()
    return JSONResponse({**conversation_json(found), "headMessageId": found.head_message_id})


@conversations.patch(
    "/{conversation_id}",
    summary="Rename, pin or archive a conversation",
    openapi_extra=schema_of(Changes),
)
async def change(
    request: Request, conversation_id: str, caller: Asking, front: AtFront
) -> JSONResponse:
    """Changes only what is named and never the order of the list."""
    body = await read_body(request, Changes)
    changes = body.model_dump(exclude_unset=True)
    store = front.desk.conversations
    if changes:
        found = await store.change(caller.user.id, conversation_id, changes)
    else:
        found = await store.get(caller.user.id, conversation_id)
    if found is None:
        raise not_found()
    return JSONResponse(conversation_json(found))


@conversations.delete(
    "/{conversation_id}", summary="Delete a conversation for good", status_code=204
)
async def delete(conversation_id: str, caller: Asking, front: AtFront) -> Response:
    """Stops its running replies, then deletes it; whoever still writes is refused. The copies in
    caches and on the disk are reached within the next minutes."""
    desk, owner = front.desk, caller.user.id
    if await desk.conversations.get(owner, conversation_id) is None:
        raise not_found()
    await _stop_replies(desk, owner, conversation_id)
    await desk.conversations.delete(owner, conversation_id)
    desk.bell.ring(DELETIONS_BELL)
    return Response(status_code=204)


def conversation_json(conversation: Conversation) -> dict[str, Any]:
    """A conversation as lists show it."""
    return {
        "id": conversation.id,
        "title": conversation.title,
        "pinned": conversation.pinned,
        "archived": conversation.archived,
        "createdAt": rfc3339(conversation.created_at),
        "updatedAt": rfc3339(conversation.updated_at),
        "activeMessageId": conversation.active_message_id,
    }


def _listed(conversation: Conversation) -> dict[str, Any]:
    listed = conversation_json(conversation)
    if conversation.snippet is not None:
        listed["snippet"] = conversation.snippet._asdict()
    return listed


async def _stop_replies(desk: Desk, owner: str, conversation_id: str) -> None:
    """Frees the engine at once. A reply admitted in between ends at its worker's next write."""
    spent = await desk.accounts.spent(owner)
    for reply_id in spent.running:
        turn = await desk.turns.find(owner, reply_id)
        if turn is not None and turn.conversation_id == conversation_id:
            await stop_reply(desk, owner, reply_id, "deleted")
