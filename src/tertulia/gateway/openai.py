"""OpenAI's chat completions and models over the same lanes, limits and checks as the chat."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tertulia.core.choice import AUTO, pickable
from tertulia.core.plans import Plan
from tertulia.core.types import Entry, ModelState, Turn
from tertulia.gateway.admit import NoSuchModel, StatelessAsk, pick_refused
from tertulia.gateway.auth import Asking, nobody
from tertulia.gateway.bodies import read_body, schema_of
from tertulia.gateway.caller import Caller
from tertulia.gateway.chatbody import (
    ChatBody,
    demand_served,
    meaning_of,
    messages_of,
    sampling_of,
)
from tertulia.gateway.chunks import (
    FINISHES,
    ChunkRender,
    abandoned,
    chosen_json,
    completion_id,
    failure_problem,
    usage_json,
)
from tertulia.gateway.desk import Desk
from tertulia.gateway.follow import Gone, Reset, follow_answer
from tertulia.gateway.following import new_stream, seat_for
from tertulia.gateway.front import AtFront, Front
from tertulia.gateway.leanroute import LeanRoute
from tertulia.gateway.line import Place
from tertulia.gateway.problems import Problem, invalid, not_pickable
from tertulia.gateway.streams import Seat
from tertulia.gateway.turnposts import idempotency_key, take_turn
from tertulia.ports import StoreUnavailable

openai = APIRouter(prefix="/v1", tags=["openai"])
completing = APIRouter(prefix="/v1", tags=["openai"], route_class=LeanRoute)

_RETRY_HEADER = "x-stainless-retry-count"


@completing.post(
    "/chat/completions",
    summary="Chat completion in OpenAI's form",
    openapi_extra=schema_of(ChatBody),
)
async def complete(request: Request, caller: Asking, front: AtFront) -> Response:
    """Streamed or whole; nothing is kept in a conversation."""
    body = await read_body(request, ChatBody)
    demand_served(body)
    plan = front.desk.plans[caller.user.plan]
    ask = chat_ask(front.desk, plan, body, lambda sha: key_of(request, caller, front, sha))
    async with seat_for(front.desk, caller) as seat:
        taken = await take_turn(front, caller, ask)
        turn = taken.turn
        if body.stream:
            headers = {"x-request-id": turn.reply_id}
            render = ChunkRender(turn, with_usage=body.includes_usage)
            return new_stream(front, caller, taken, seat, render=render, headers=headers)
        return await _whole(request, front, caller, turn, seat)


@openai.get("/models", summary="The models that can be asked for")
async def list_models(caller: Asking, front: AtFront) -> JSONResponse:
    """`auto` and what the caller's plan may pick, as people call it and by itself; with states."""
    models = _models(front, caller)
    return JSONResponse({"object": "list", "data": list(models.values())})


@openai.get("/models/{model_id:path}", summary="One model")
async def one_model(model_id: str, caller: Asking, front: AtFront) -> JSONResponse:
    """The same entry as in the list; ids may hold slashes."""
    model = _models(front, caller).get(model_id)
    if model is None:
        raise no_such_model()
    return JSONResponse(model)


def no_such_model() -> Problem:
    """OpenAI's answer for a model that is not there."""
    return Problem(
        "not_found",
        "No model of this name is served here.",
        field="model",
        openai_code="model_not_found",
    )


def chat_ask(desk: Desk, plan: Plan, body: ChatBody, key: Callable[[str], str]) -> StatelessAsk:
    """What the door is asked for; `key` makes the turn's key of what the body means."""
    messages, sampling = messages_of(body), sampling_of(body)
    refused = pick_refused(desk, plan, body.model)
    if isinstance(refused, NoSuchModel):
        raise no_such_model()
    if refused is not None:
        raise not_pickable(refused.names)
    try:
        desk.vocabulary(body.model).render(messages)
    except ValueError:
        sentence = "The model can't take messages with roles in this order."
        raise invalid("messages", sentence) from None
    sha = meaning_of(body, messages, sampling)
    return StatelessAsk(
        messages=messages,
        model=body.model,
        key=key(sha),
        body_sha=sha,
        sampling=sampling,
        answer_tokens=body.answer_tokens,
    )


def key_of(request: Request, caller: Caller, front: Front, sha: str) -> str:
    """The caller's key, the one of the try that this request repeats, or a new one."""
    key = idempotency_key(request)
    if key is not None:
        return key
    retries = request.headers.get(_RETRY_HEADER, "0")
    known = front.retries.key_for(caller.credential, sha) if retries != "0" else None
    made = known or front.desk.new_id("once")
    front.retries.remember(caller.credential, sha, made)
    return made


async def _whole(
    request: Request, front: Front, caller: Caller, turn: Turn, seat: Seat
) -> Response:
    """Waits for the end, counted as a follower as long as the client is there and may listen."""
    streams = front.desk.streams
    entries: list[Entry] = []
    with streams.running(seat, caller, turn.reply_id):
        batches = follow_answer(front.desk, turn, after=0, attempt=None)
        async with aclosing(batches):
            async for batch in batches:
                if streams.is_refused(caller):
                    raise nobody()
                if not streams.may_listen(caller):
                    raise StoreUnavailable("nobody can say who may listen")
                if isinstance(batch, Gone):
                    raise Problem("not_found", "This reply was deleted.")
                if isinstance(batch, Reset):
                    entries.clear()
                elif batch and not isinstance(batch, Place):
                    entries.extend(batch)
                elif await request.is_disconnected():
                    return Response(status_code=499)
    return JSONResponse(completion(turn, entries), headers={"x-request-id": turn.reply_id})


def completion(turn: Turn, entries: Sequence[Entry]) -> dict[str, Any]:
    """The whole answer, from the reply's events; Problem when it failed."""
    events = [(entry.kind, json.loads(entry.data)) for entry in entries]
    kind, end = events[-1]
    if kind == "fail":
        raise failure_problem(end)
    if end["finish"] not in FINISHES:
        raise abandoned()
    meta = next(data for kind, data in events if kind == "meta")
    text = "".join(data["text"] for kind, data in events if kind == "delta")
    refusal = next((data["text"] for kind, data in events if kind == "refusal"), None)
    message = {
        "role": "assistant",
        "content": text if text or refusal is None else None,
        "refusal": refusal,
    }
    choice = {
        "index": 0,
        "message": message,
        "logprobs": None,
        "finish_reason": FINISHES[end["finish"]],
    }
    return {
        "id": completion_id(turn),
        "object": "chat.completion",
        "created": int(turn.created_at),
        "model": meta["model"] or meta["requested"],
        "choices": [choice],
        "usage": usage_json(end["usage"]),
        "tertulia": chosen_json(meta),
    }


def _models(front: Front, caller: Caller) -> dict[str, dict[str, Any]]:
    """What this caller may ask for. Of several models under one name the first that is ready."""
    states = front.desk.replicas.models()
    models = {}
    for name in pickable(states, front.desk.plans[caller.user.plan].models):
        meant = [one for one in states if name in (AUTO, one.name, one.served)]
        shown = next((one for one in meant if one.state == "ready"), meant[0] if meant else None)
        if shown is not None:
            models[name] = _model_json(name, shown)
    return models


def _model_json(name: str, state: ModelState) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "tertulia",
        "status": {
            "state": state.state,
            "done_bytes": state.done_bytes,
            "total_bytes": state.total_bytes,
            "message": state.message,
        },
    }
