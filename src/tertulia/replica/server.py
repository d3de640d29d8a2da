"""The embedded engine over HTTP, in the dialect of a vLLM server.

It must never cut a prompt silently, and never keep computing for a client that has gone.
"""

import hmac
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tertulia import __version__
from tertulia.core.blocks import Owner
from tertulia.core.fleet import DRAINING
from tertulia.core.types import PromptMessage
from tertulia.leaving import Leaving
from tertulia.replica.chat import ChatPrompts
from tertulia.replica.constraint import CompiledConstraint, ConstraintRefused, Constraints
from tertulia.replica.description import Description
from tertulia.replica.desk import Desk
from tertulia.replica.dialect import (
    AbortBody,
    BadRequest,
    ChatBody,
    ChatMessage,
    CompletionBody,
    DetokenizeBody,
    ForgetBody,
    SamplingBody,
    TokenizeBody,
    UsageQuery,
    read_body,
    read_query,
)
from tertulia.replica.documents import error_document
from tertulia.replica.engine import Engine
from tertulia.replica.generation import Generation
from tertulia.replica.metrics import ReplicaMetrics
from tertulia.replica.model import Choice, Model
from tertulia.replica.reply import ChatShape, CompletionShape, Labels, Reply, Shape, Wishes
from tertulia.template import Ending, TemplateRefused

BODY_BYTES = 8_000_000  # a window of token ids as JSON is a few hundred kilobytes
ID_CHARS = 256
ID_PREFIXES = ("cmpl-", "chatcmpl-", "generate-tokens-")
OPEN_PATHS = ("/health", "/ping")
COMPILERS = 2  # threads; a constraint takes up to 30 ms, and parsers must not starve the steps


@dataclass(frozen=True)
class Served:
    """Everything a request needs."""

    description: Description
    model: Model
    engine: Engine
    desk: Desk
    metrics: ReplicaMetrics
    prompts: ChatPrompts
    constraints: Constraints
    compilers: anyio.CapacityLimiter
    stream_interval: int  # tokens in one chunk at least, but for the first and the last
    began_at: int
    leaving: Leaving = field(default_factory=Leaving)


def replica_app(served: Served, key: str | None) -> ASGIApp:
    """The ASGI application; with a `key`, everything but `/health` and `/ping` asks for it."""
    routes = [
        _route("/v1/completions", "POST", served, _completions),
        _route("/v1/chat/completions", "POST", served, _chat),
        _route("/tokenize", "POST", served, _tokenize),
        _route("/detokenize", "POST", served, _detokenize),
        _route("/inference/v1/abort_requests", "POST", served, _abort),
        _route("/inference/v1/forget", "POST", served, _forget),
        _route("/inference/v1/usage", "GET", served, _usage),
        _route("/v1/models", "GET", served, _models),
        _route("/health", "GET", served, _health),
        _route("/ping", "GET", served, _health),
        _route("/ping", "POST", served, _health),
        _route("/version", "GET", served, _version),
        _route("/metrics", "GET", served, _metrics),
    ]
    app = Starlette(routes=routes)
    return app if key is None else _Guarded(app, key)


async def _completions(served: Served, request: Request) -> Response:
    body = read_body(CompletionBody, await _body(request))
    asked = body.prompt
    prompt = served.model.encode(asked) if isinstance(asked, str) else asked
    max_tokens = body.max_tokens if body.max_tokens is not None else _room(served, prompt)
    generation = await _generation(served, request, body, prompt, max_tokens)
    return _reply(served, body, generation, CompletionShape(bool(body.return_token_ids)))


async def _chat(served: Served, request: Request) -> Response:
    body = read_body(ChatBody, await _body(request))
    prompt = _rendered(
        served,
        body.messages,
        add_prompt=body.add_generation_prompt,
        continue_last=body.continue_final_message,
    )
    asked = body.max_completion_tokens or body.max_tokens
    max_tokens = asked if asked is not None else _room(served, prompt)
    generation = await _generation(served, request, body, prompt, max_tokens)
    return _reply(served, body, generation, ChatShape(bool(body.return_token_ids)))


async def _tokenize(served: Served, request: Request) -> Response:
    body = read_body(TokenizeBody, await _body(request))
    if body.messages is not None:
        tokens = _rendered(
            served,
            body.messages,
            add_prompt=body.add_generation_prompt,
            continue_last=body.continue_final_message,
        )
    elif body.prompt is not None:
        tokens = served.model.encode(body.prompt)
    else:
        raise BadRequest("prompt or messages is required", "prompt")
    window = served.model.limits.window_tokens
    return JSONResponse(
        {"count": len(tokens), "max_model_len": window, "tokens": tokens, "token_strs": None}
    )


async def _detokenize(served: Served, request: Request) -> Response:
    body = read_body(DetokenizeBody, await _body(request))
    window = served.model.limits.window_tokens
    if len(body.tokens) > window:  # nothing here is longer; a body of ids could be 100 MB of text
        raise BadRequest(f"tokens: the window has only {window}", "tokens")
    _check_ids(served, body.tokens, "tokens")
    data = b"".join(served.model.piece(token) for token in body.tokens)
    return JSONResponse({"prompt": data.decode(errors="replace")})


async def _abort(served: Served, request: Request) -> Response:
    body = read_body(AbortBody, await _body(request))
    try:
        n_aborted = await served.desk.abort(served.engine, _bare_ids(body.request_ids))
    except TimeoutError:
        return _error("the engine does not answer", "internal_error", 504)
    return JSONResponse({"aborted": n_aborted})


async def _forget(served: Served, request: Request) -> Response:
    body = read_body(ForgetBody, await _body(request))
    try:
        reached = await served.desk.forget(served.engine, body.cache_salt, body.session_id)
    except TimeoutError:
        return _error("the engine does not answer", "internal_error", 504)
    tiers = {"device": reached.n_device, "host": reached.n_host, "disk": reached.n_disk}
    return JSONResponse({"forgotten_blocks": tiers})


async def _usage(served: Served, request: Request) -> Response:
    query = read_query(UsageQuery, dict(request.query_params))
    ids = None if query.request_id is None else _bare_ids([query.request_id])
    found = served.desk.uses.listed(ids, query.after, query.limit)
    return JSONResponse({"began_at": served.began_at, "requests": [asdict(use) for use in found]})


async def _models(served: Served, _request: Request) -> Response:
    card = {
        "id": served.description.served_id,
        "object": "model",
        "created": served.began_at,
        "owned_by": "tertulia",
        "root": served.description.served_id,
        "parent": None,
        "max_model_len": served.model.limits.window_tokens,
        "permission": [],
    }
    return JSONResponse({"object": "list", "data": [card]})


async def _health(served: Served, _request: Request) -> Response:
    return Response(status_code=200 if served.engine.alive else 503)


async def _version(_served: Served, _request: Request) -> Response:
    return JSONResponse({"version": __version__})


async def _metrics(served: Served, _request: Request) -> Response:
    return Response(served.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _generation(
    served: Served, request: Request, body: SamplingBody, prompt: list[int], max_tokens: int
) -> Generation:
    if served.leaving.asked.is_set():
        raise _Leaves
    if body.model not in (None, served.description.served_id):
        raise _NotFound(f"The model `{body.model}` does not exist.")
    _check_ids(served, prompt, "prompt")
    _check_ids(served, body.logit_bias or (), "logit_bias")
    _check_window(served, len(prompt), max_tokens)
    if body.cache_shared_tokens > len(prompt):  # or a reply would be kept for everybody
        raise BadRequest(
            f"cache_shared_tokens: the prompt has only {len(prompt)} tokens", "cache_shared_tokens"
        )
    if body.stream_options is not None and not body.stream:
        raise BadRequest("stream_options goes with stream, and only with it", "stream_options")
    asked = body.repetition_detection
    return Generation(
        id=_request_id(request, body),
        prompt=tuple(prompt),
        max_tokens=max_tokens,
        choice=_choice(served, body, await _constraint(served, body)),
        stop=body.stops,
        repetition=served.description.sampling.repetition if asked is None else asked.rule,
        ignore_end=body.ignore_eos,
        priority=body.priority,
        owner=Owner(body.cache_salt, body.cache_shared_tokens, body.session_id),
    )


def _check_window(served: Served, n_prompt: int, max_tokens: int) -> None:
    window = served.model.limits.window_tokens
    if n_prompt >= window:
        raise BadRequest(
            f"This model's maximum context length is {window} tokens. "
            f"However, your prompt has {n_prompt} tokens.",
            "prompt",
        )
    if n_prompt + max_tokens > window:
        raise BadRequest(
            f"This model's maximum context length is {window} tokens. However, you asked for "
            f"{max_tokens} tokens after a prompt of {n_prompt} tokens.",
            "max_tokens",
        )


def _choice(served: Served, body: SamplingBody, constraint: CompiledConstraint | None) -> Choice:
    own = served.description.sampling
    penalty = body.repetition_penalty
    return Choice(
        temperature=own.temperature if body.temperature is None else body.temperature,
        top_p=own.top_p if body.top_p is None else body.top_p,
        repetition_penalty=own.repetition_penalty if penalty is None else penalty,
        seed=uuid.uuid4().int if body.seed is None else body.seed,
        top_k=own.top_k if body.top_k is None else max(0, body.top_k),
        min_p=body.min_p or 0.0,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        biases=tuple((body.logit_bias or {}).items()),
        constraint=constraint,
    )


async def _constraint(served: Served, body: SamplingBody) -> CompiledConstraint | None:
    form = body.form
    if form is None:
        return None
    if body.ignore_eos:
        raise BadRequest("ignore_eos: a reply of a given form has an end", "ignore_eos")
    try:
        return await anyio.to_thread.run_sync(
            served.constraints.compile, form.kind, form.source, limiter=served.compilers
        )
    except ConstraintRefused as error:
        raise BadRequest(f"{form.field}: {error}", form.field) from None


def _reply(served: Served, body: SamplingBody, generation: Generation, shape: Shape) -> Response:
    options = body.stream_options
    return Reply(
        lambda: served.desk.submit(served.engine, served.metrics, generation),
        served.metrics.refused,
        generation,
        shape,
        Labels(
            id=f"{shape.prefix}{generation.id}",
            created=int(time.time()),
            model=served.description.served_id,
        ),
        Wishes(
            stream=bool(body.stream),
            usage_chunk=options is not None and options.include_usage,
            usage_always=options is not None and options.continuous_usage_stats,
            interval_tokens=max(served.stream_interval, body.stream_interval or 1),
        ),
    )


def _room(served: Served, prompt: list[int]) -> int:
    """What the window leaves for the reply, where the request does not say."""
    return max(1, served.model.limits.window_tokens - len(prompt))


def _rendered(
    served: Served,
    messages: list[ChatMessage],
    *,
    add_prompt: bool,
    continue_last: bool,
) -> list[int]:
    ending: Ending = "continue" if continue_last else "answer" if add_prompt else "closed"
    said = [PromptMessage(message.template_role, message.text) for message in messages]
    try:
        return served.prompts.tokens(said, ending, served.model.encode)
    except TemplateRefused as error:
        raise BadRequest(f"messages: {error}", "messages") from None


def _check_ids(served: Served, tokens: Iterable[int], field: str) -> None:
    n_vocabulary = served.model.limits.n_vocabulary
    if any(token >= n_vocabulary for token in tokens):
        raise BadRequest(f"{field}: token ids end at {n_vocabulary - 1}", field)


def _bare_ids(given: Iterable[str]) -> frozenset[str]:
    """The ids as they were asked for, with or without the prefix that an answer's id has."""
    bare = {one.removeprefix(prefix) for one in given for prefix in ID_PREFIXES}
    return frozenset(bare | set(given))


def _request_id(request: Request, body: SamplingBody) -> str:
    given = request.headers.get("x-request-id") or body.request_id
    if given is None:
        return uuid.uuid4().hex
    if len(given) > ID_CHARS or not given.isprintable():
        raise BadRequest(f"X-Request-Id: at most {ID_CHARS} printable characters", "request_id")
    return given


async def _body(request: Request) -> bytes:
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > BODY_BYTES:
            raise BadRequest(f"the body is larger than {BODY_BYTES} bytes", None)
    return bytes(data)


class _Leaves(Exception):
    """This replica takes nothing new; another will."""


class _NotFound(Exception):
    """There is no such model here."""


def _route(
    path: str,
    method: str,
    served: Served,
    answer: Callable[[Served, Request], Awaitable[Response]],
) -> Route:
    async def endpoint(request: Request) -> Response:
        try:
            return await answer(served, request)
        except BadRequest as error:
            return _error(str(error), "BadRequestError", 400, error.field)
        except _NotFound as error:
            return _error(str(error), "NotFoundError", 404, "model")
        except _Leaves:
            return _error("this replica is about to end", DRAINING, 503)

    return Route(path, endpoint, methods=[method])


def _error(message: str, kind: str, code: int, field: str | None = None) -> Response:
    return JSONResponse(error_document(message, kind, code, field), code)


class _Guarded:
    """Asks for the key on every path but the open ones."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._expected = f"Bearer {key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            headers: dict[bytes, Any] = dict(scope["headers"])
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                refusal = _error("Unauthorized", "AuthenticationError", 401)
                refusal.headers["WWW-Authenticate"] = "Bearer"
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)
