"""Messages and replies over HTTP: read, ask, regenerate, follow, stop, rate."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tertulia.core.turn import text_so_far
from tertulia.core.types import HEAD, Message, Turn
from tertulia.gateway.admit import UNSET, MessageAsk, RegenerateAsk
from tertulia.gateway.auth import Asking
from tertulia.gateway.bodies import Body, body_sha, read_body, schema_of
from tertulia.gateway.desk import Desk
from tertulia.gateway.follow import Ahead, Finished, resume_point
from tertulia.gateway.following import resumed_stream, seat_for
from tertulia.gateway.front import AtFront
from tertulia.gateway.leanroute import LeanRoute
from tertulia.gateway.moments import rfc3339
from tertulia.gateway.problems import Problem, invalid, not_found
from tertulia.gateway.stop import stop_turn, turn_named
from tertulia.gateway.turnposts import answer_post, demand_key
from tertulia.ports import StoreUnavailable

messages = APIRouter(prefix="/v1", tags=["messages"])
asking = APIRouter(prefix="/v1", tags=["messages"], route_class=LeanRoute)

_EVENT_ID = re.compile(r"[0-9]{1,10}\Z")


class NewMessage(Body):
    """A message and where it hangs: absent parentId is after the newest, null at the root."""

    content: str = Field(min_length=1)
    parent_id: str | None = Field(default=None, min_length=1, max_length=100)
    model: str = Field(default="auto", min_length=1, max_length=200)


class Again(Body):
    """Which model makes the further reply."""

    model: str = Field(default="auto", min_length=1, max_length=200)


class Feedback(Body):
    """What the reader thought of a reply; null takes it back."""

    rating: Literal["up", "down"] | None
    reason: str = Field(default="", max_length=2_000)


@messages.get("/conversations/{conversation_id}/messages", summary="A conversation's messages")
async def page(
    conversation_id: str,
    caller: Asking,
    front: AtFront,
    branch: Annotated[str | None, Query(max_length=100)] = None,
    before: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 100,
) -> JSONResponse:
    """The newest messages before `before`, oldest first; a running reply with its text so far.

    With `branch` those of one branch alone: the one shown (`head`), or the one that leads through a
    message to the leaf at which it was last shown.
    """
    desk, owner = front.desk, caller.user.id
    if branch is None:
        found = await desk.messages.page(owner, conversation_id, before=before, limit=limit)
    else:
        through = HEAD if branch == HEAD.value else branch
        found = await desk.branches.page(
            owner, conversation_id, through=through, before=before, limit=limit
        )
    if found is None:
        raise not_found()
    items = [await message_json(desk, message) for message in found.items]
    return JSONResponse({"items": items, "nextBefore": found.next_cursor})


@asking.post(
    "/conversations/{conversation_id}/messages",
    summary="Send a message and get a reply",
    openapi_extra=schema_of(NewMessage),
)
async def post(request: Request, conversation_id: str, caller: Asking, front: AtFront) -> Response:
    """Streams the reply, or answers 202 and where to follow it. Needs an Idempotency-Key."""
    key = demand_key(request)
    body = await read_body(request, NewMessage)
    if body.content.isspace():
        raise invalid("content", "The message is empty.")
    parent = body.parent_id if "parent_id" in body.model_fields_set else UNSET
    meaning = body.model_dump(include={"content", "model"})
    if parent is not UNSET:
        meaning["parent"] = parent
    sha = body_sha({"post": conversation_id, **meaning})
    ask = MessageAsk(conversation_id, body.content, parent, body.model, key, sha)
    return await answer_post(request, front, caller, ask)


@asking.post(
    "/messages/{message_id}/regenerate",
    summary="Make a further reply to the same question",
    openapi_extra=schema_of(Again),
)
async def regenerate(request: Request, message_id: str, caller: Asking, front: AtFront) -> Response:
    """The new reply is a sibling of the old one. Needs an Idempotency-Key of its own."""
    key = demand_key(request)
    body = await read_body(request, Again, empty=b"{}")
    sha = body_sha({"regenerate": message_id, "model": body.model})
    return await answer_post(
        request, front, caller, RegenerateAsk(message_id, body.model, key, sha)
    )


@messages.post("/messages/{message_id}/stop", summary="Stop a reply and keep what was said")
async def stop(message_id: str, caller: Asking, front: AtFront) -> JSONResponse:
    """Answers with the saved reply once the replica has dropped it; stopping twice is no error.

    The turn's Idempotency-Key names its reply as well.
    """
    desk, owner = front.desk, caller.user.id
    turn = await turn_named(desk, owner, message_id)
    stopped = await stop_turn(desk, turn, "stopped") if turn is not None else None
    if stopped is None:
        raise not_found()
    if stopped.conversation_id is None:
        return JSONResponse(await message_json(desk, _lone_reply(stopped)))
    message = await desk.messages.find(owner, stopped.reply_id)
    if message is None:
        raise not_found()
    return JSONResponse(await message_json(desk, message))


@messages.post(
    "/messages/{message_id}/feedback", summary="Rate a reply", openapi_extra=schema_of(Feedback)
)
async def feedback(
    request: Request, message_id: str, caller: Asking, front: AtFront
) -> JSONResponse:
    """Stores the rating and touches nothing else."""
    body = await read_body(request, Feedback)
    desk = front.desk
    rated = await desk.messages.rate(caller.user.id, message_id, body.rating, body.reason)
    if rated is None:
        raise not_found()
    return JSONResponse(await message_json(desk, rated))


@messages.get("/messages/{message_id}/stream", summary="Follow a reply")
async def stream(
    message_id: str,
    caller: Asking,
    front: AtFront,
    last_event_id: Annotated[str | None, Header()] = None,
    query_last_event_id: Annotated[str | None, Query(alias="lastEventId")] = None,
    attempt: Annotated[str | None, Query()] = None,
) -> Response:
    """Every event after the last one seen, then live. 204 when everything was seen."""
    given = last_event_id if last_event_id is not None else query_last_event_id
    last = _event_number(given, "Last-Event-ID")
    meant = _event_number(attempt, "attempt")
    desk = front.desk
    turn = await desk.turns.find(caller.user.id, message_id)
    if turn is None:
        raise not_found()
    point = await resume_point(desk, turn, last, meant)
    if isinstance(point, Finished):
        return Response(status_code=204)
    if isinstance(point, Ahead):
        sentence = f"The newest event is {point.last}."
        raise Problem("event_id_ahead", sentence, more={"lastEventId": point.last})
    async with seat_for(desk, caller) as seat:
        return resumed_stream(desk, caller, turn, point, seat)


async def message_json(desk: Desk, message: Message) -> dict[str, Any]:
    """A message as clients show it. A reply in progress has its text and last id from one view."""
    content, last_event_id = message.content, message.last_event_id
    if not message.status.is_final:
        try:
            view = await desk.log.read(message.id, 0)
        except StoreUnavailable:
            view = None  # the rest of the conversation can be read all the same
        content = text_so_far(view.entries) if view is not None else ""
        last_event_id = view.last if view is not None else 0
    failure = message.failure
    version = {} if message.version is None else {"version": asdict(message.version)}
    return {
        "id": message.id,
        "parentId": message.parent_id,
        "seq": message.seq,
        "role": message.role,
        "content": content,
        "tokens": message.tokens,
        "model": message.model,
        "requested": message.requested,
        "reason": message.reason,
        "status": message.status,
        "finish": message.finish,
        "notices": list(message.notices),
        "feedback": message.feedback,
        "createdAt": rfc3339(message.created_at),
        "error": failure
        and {
            "code": failure.code,
            "message": failure.message,
            "retryable": failure.retryable,
        },
        "lastEventId": last_event_id,
        **version,
    }


def _lone_reply(turn: Turn) -> Message:
    """The reply of a call that belongs to no conversation, and so has no message of its own."""
    return Message(
        owner=turn.owner,
        conversation_id="",
        id=turn.reply_id,
        parent_id=None,
        seq=1,
        role="assistant",
        content=turn.text,
        tokens=turn.usage.output,
        tokenizer="",
        status=turn.status,
        created_at=turn.created_at,
        model=turn.model,
        requested=turn.requested,
        reason=turn.reason,
        finish=turn.finish,
        notices=turn.notices,
        failure=turn.failure,
        last_event_id=turn.last_event_id,
    )


def _event_number(given: str | None, field: str) -> int | None:
    """An id or attempt as the contract writes them: `int()` would take `+5`, `1_000` and `٣`."""
    if given is None or given == "":
        return None
    if not _EVENT_ID.match(given):
        sentence = f"{field} must be a decimal number of 1 to 10 digits."
        raise Problem("invalid_event_id", sentence, field=field)
    return int(given)
