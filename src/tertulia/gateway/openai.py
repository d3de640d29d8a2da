"""OpenAI's chat completions and models over the same lanes, limits and checks as the chat."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tertulia.core.placement import AUTO
from tertulia.core.types import Entry, ModelState, Turn
from tertulia.gateway.admit import StatelessAsk
from tertulia.gateway.auth import Asking
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
    completion_id,
    failure_problem,
    usage_json,
)
from tertulia.gateway.follow import Gone, Reset, follow_answer
from tertulia.gateway.following import demand_room, new_stream
from tertulia.gateway.front import AtFront, Front
from tertulia.gateway.problems import Problem, invalid
from tertulia.gateway.turnposts import idempotency_key, take_turn

openai = APIRouter(prefix="/v1", tags=["openai"])

_RETRY_HEADER = "x-stainless-retry-count"


@openai.post(
    "/chat/completions",
    summary="Chat completion in OpenAI's form",
    openapi_extra=schema_of(ChatBody),
)
async def complete(request: Request, caller: Asking, front: AtFront) -> Response:
    """Streamed or whole; nothing is kept in a conversation."""
    body = await read_body(request, ChatBody)
    demand_served(body)
    ask = _ask(request, caller, front, body)
    if body.stream:
        demand_room(front.desk, caller)
    turn = await take_turn(front, caller, ask)
    headers = {"x-request-id": turn.reply_id}
    if body.stream:
        render = ChunkRender(turn, with_usage=body.includes_usage)
        return new_stream(front, caller, turn, render=render, headers=headers)
    return await _whole(request, front, turn, headers)


@openai.get("/models", summary="The models that can be asked for")
async def list_models(_: Asking, front: AtFront) -> JSONResponse:
    """`auto`, the names people pick, and the models behind them; each with its state."""
    models = _models(front.desk.replicas.models())
    return JSONResponse({"object": "list", "data": list(models.values())})


@openai.get("/models/{model_id:path}", summary="One model")
async def one_model(model_id: str, _: Asking, front: AtFront) -> JSONResponse:
    """The same entry as in the list; ids may hold slashes."""
    model = _models(front.desk.replicas.models()).get(model_id)
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


def _ask(request: Request, caller: Caller, front: Front, body: ChatBody) -> StatelessAsk:
    messages, sampling = messages_of(body), sampling_of(body)
    if body.model not in _models(front.desk.replicas.models()):
        raise no_such_model()
    try:
        front.desk.vocabulary(body.model).render(messages)
    except ValueError:
        sentence = "The model can't take messages with roles in this order."
        raise invalid("messages", sentence) from None
    sha = meaning_of(body, messages, sampling)
    return StatelessAsk(
        messages=messages,
        model=body.model,
        key=_key(request, caller, front, sha),
        body_sha=sha,
        sampling=sampling,
        answer_tokens=body.answer_tokens,
    )


def _key(request: Request, caller: Caller, front: Front, sha: str) -> str:
    """The caller's key, the one of the try that this request repeats, or a new one."""
    key = idempotency_key(request)
    if key is not None:
        return key
    retries = request.headers.get(_RETRY_HEADER, "0")
    known = front.retries.key_for(caller.credential, sha) if retries != "0" else None
    made = known or front.desk.new_id("once")
    front.retries.remember(caller.credential, sha, made)
    return made


async def _whole(request: Request, front: Front, turn: Turn, headers: dict[str, str]) -> Response:
    """Waits for the end, counted as a follower as long as the client is there."""
    streams = front.desk.streams
    entries: list[Entry] = []
    streams.opened(turn.owner, turn.reply_id)
    try:
        batches = follow_answer(front.desk, turn, after=0, attempt=None)
        async with aclosing(batches):
            async for batch in batches:
                if isinstance(batch, Gone):
                    raise Problem("not_found", "This reply was deleted.")
                if isinstance(batch, Reset):
                    entries.clear()
                elif batch:
                    entries.extend(batch)
                elif await request.is_disconnected():
                    return Response(status_code=499)
    finally:
        streams.closed(turn.owner, turn.reply_id)
    return JSONResponse(_completion(turn, entries), headers=headers)


def _completion(turn: Turn, entries: list[Entry]) -> dict[str, Any]:
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
    }


def _models(states: Sequence[ModelState]) -> dict[str, dict[str, Any]]:
    ready = next((state for state in states if state.state == "ready"), None)
    best = ready or (states[0] if states else None)
    models = {}
    if best is not None:
        models[AUTO] = _model_json(AUTO, best)
    for state in states:
        models[state.name] = _model_json(state.name, state)
    for state in states:
        models.setdefault(state.served, _model_json(state.served, state))
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
