"""Links to conversations: made and revoked by their owner, read by whoever has one.

A link shows a snapshot that is whole when it is made, so that nothing of it streams: what is
revoked or deleted is not given any more, by any gateway.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tertulia.core.shares import NewShare, NothingToShare, Share, TooManyShares
from tertulia.core.types import HEAD
from tertulia.gateway.addresses import address_of
from tertulia.gateway.auth import Asking, secret_hash
from tertulia.gateway.bodies import Body, read_body, schema_of
from tertulia.gateway.front import AtFront
from tertulia.gateway.moments import rfc3339
from tertulia.gateway.problems import Problem, invalid, not_found

shares = APIRouter(prefix="/v1", tags=["shares"])

# All of a user's links are one list; whoever needs more can do without some of the old ones.
_SHARES = 500
# Longer than any secret of ours.
_TOKEN_CHARS = 100
_READERS_HEADERS = {"Cache-Control": "private, no-store", "X-Robots-Tag": "noindex"}


class NewLink(Body):
    """Where the branch ends that is shown: a message, or the newest one."""

    leaf_id: str | None = Field(default=None, min_length=1, max_length=100)


@shares.post(
    "/conversations/{conversation_id}/shares",
    summary="Make a link to a branch as it is now",
    status_code=201,
    openapi_extra=schema_of(NewLink),
)
async def share(
    request: Request, conversation_id: str, caller: Asking, front: AtFront
) -> JSONResponse:
    """Whoever has the link can read it. Its token is in this answer and never again."""
    desk = front.desk
    if not desk.rules.shares_open:
        raise Problem("forbidden", "Sharing is closed here; ask an administrator.")
    body = await read_body(request, NewLink, empty=b"{}")
    token = secrets.token_urlsafe(32)
    new = NewShare(
        owner=caller.user.id,
        id=desk.new_id("s"),
        conversation_id=conversation_id,
        leaf=HEAD if body.leaf_id is None else body.leaf_id,
        token_hash=secret_hash(token),
    )
    made = await desk.shares.add(new, limit=_SHARES)
    if made is None:
        raise not_found()
    if isinstance(made, NothingToShare):
        raise invalid("leafId", "There is nothing to share on this branch yet.")
    if isinstance(made, TooManyShares):
        sentence = f"You have {made.limit} links; revoke one that nobody needs any more."
        raise Problem("too_many_shares", sentence, more={"limit": made.limit})
    shown = {**_share_json(made), "token": token, "url": f"/s/{token}"}
    return JSONResponse(shown, 201, {"Location": f"/v1/shares/{token}"})


@shares.get("/conversations/{conversation_id}/shares", summary="A conversation's links")
async def of_conversation(conversation_id: str, caller: Asking, front: AtFront) -> JSONResponse:
    """Newest first, without their tokens."""
    return await _listed(front, caller.user.id, conversation_id)


@shares.get("/shares", summary="Your links")
async def of_all(caller: Asking, front: AtFront) -> JSONResponse:
    """Newest first, without their tokens."""
    return await _listed(front, caller.user.id, None)


@shares.delete("/shares/{share_id}", summary="Revoke a link", status_code=204)
async def revoke(share_id: str, caller: Asking, front: AtFront) -> Response:
    """From now on nobody can read it, at any gateway."""
    if not await front.desk.shares.revoke(caller.user.id, share_id):
        raise not_found()
    return Response(status_code=204)


@shares.get("/shares/{token}", summary="Read what somebody shared")
async def read(
    token: str,
    request: Request,
    front: AtFront,
    after: Annotated[int, Query(ge=0, le=2**31)] = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 100,
) -> JSONResponse:
    """For anybody who has the link: title and messages, oldest first; never whose they are."""
    desk = front.desk
    if not desk.rules.shares_open or len(token) > _TOKEN_CHARS:
        raise not_found()
    address = address_of(request)
    tried = await front.wrong_links.demand(address)
    page = await desk.shares.page(secret_hash(token), after=after, limit=limit)
    if page is None:
        raise not_found()
    front.wrong_links.take_back(address, tried)
    shown = {
        "title": page.title,
        "createdAt": rfc3339(page.created_at),
        "messages": [
            {
                "place": message.place,
                "role": message.role,
                "content": message.content,
                "model": message.model,
                "status": message.status,
            }
            for message in page.messages
        ],
        "nextAfter": page.next_after,
    }
    return JSONResponse(shown, headers=_READERS_HEADERS)


async def _listed(front: AtFront, owner: str, conversation_id: str | None) -> JSONResponse:
    found = await front.desk.shares.list(owner, conversation_id)
    if found is None:
        raise not_found()
    return JSONResponse({"items": [_share_json(one) for one in found]})


def _share_json(share: Share) -> dict[str, Any]:
    return {
        "id": share.id,
        "conversationId": share.conversation_id,
        "title": share.title,
        "messages": share.snapshot.shown_messages,
        "createdAt": rfc3339(share.created_at),
    }
