"""Writes one generation as an HTTP answer, streamed or whole, and ends it when the client leaves.

It must never end a broken stream as if it were complete: clients take a bare end for success.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from tertulia.replica.desk import Ticket
from tertulia.replica.documents import (
    DONE,
    chat_delta,
    completion_choice,
    error_document,
    event,
    usage_document,
)
from tertulia.replica.generation import Emission, Generation
from tertulia.replica.inbox import EngineDead, QueueFull
from tertulia.replica.interval import StreamInterval

RETRY_AFTER_S = "1"  # a slot comes free within seconds; callers spread their own retries
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(frozen=True)
class Labels:
    """What every document of one answer repeats."""

    id: str
    created: int
    model: str


@dataclass(frozen=True)
class Wishes:
    """How the client wants its answer."""

    stream: bool
    usage_chunk: bool
    usage_always: bool
    interval_tokens: int


class Shape(Protocol):
    """How one kind of completion looks."""

    @property
    def prefix(self) -> str:
        """Of every answer's id."""

    @property
    def chunk_object(self) -> str: ...

    @property
    def whole_object(self) -> str: ...

    def opening(self) -> list[dict[str, Any]]:
        """The choices of a chunk before any token, if this kind has one."""

    def beside(self, prompt: Sequence[int]) -> dict[str, Any]:
        """What the opening, or the whole document, says beside its choices."""

    def chunk(self, emission: Emission, prompt: Sequence[int] | None) -> dict[str, Any]:
        """The choice of one chunk; `prompt` is given with the first one only."""

    def whole(
        self, text: str, ids: Sequence[int], last: Emission, prompt: Sequence[int]
    ) -> dict[str, Any]: ...


@dataclass(frozen=True)
class CompletionShape:
    """`/v1/completions`."""

    with_ids: bool
    prefix: str = field(default="cmpl-", init=False)
    chunk_object: str = field(default="text_completion", init=False)
    whole_object: str = field(default="text_completion", init=False)

    def opening(self) -> list[dict[str, Any]]:
        return []

    def beside(self, prompt: Sequence[int]) -> dict[str, Any]:  # noqa: ARG002  # one signature for both kinds
        return {}

    def chunk(self, emission: Emission, prompt: Sequence[int] | None) -> dict[str, Any]:
        return completion_choice(
            emission.text,
            emission.finish,
            emission.stop_string,
            emission.tokens if self.with_ids else None,
            prompt if self.with_ids else None,
        )

    def whole(
        self, text: str, ids: Sequence[int], last: Emission, prompt: Sequence[int]
    ) -> dict[str, Any]:
        shown_ids, shown_prompt = (ids, prompt) if self.with_ids else (None, None)
        return completion_choice(text, last.finish, last.stop_string, shown_ids, shown_prompt)


@dataclass(frozen=True)
class ChatShape:
    """`/v1/chat/completions`."""

    with_ids: bool
    prefix: str = field(default="chatcmpl-", init=False)
    chunk_object: str = field(default="chat.completion.chunk", init=False)
    whole_object: str = field(default="chat.completion", init=False)

    def opening(self) -> list[dict[str, Any]]:
        return [chat_delta({"role": "assistant", "content": ""}, None, None, None)]

    def beside(self, prompt: Sequence[int]) -> dict[str, Any]:
        return {"prompt_token_ids": list(prompt)} if self.with_ids else {}

    def chunk(self, emission: Emission, prompt: Sequence[int] | None) -> dict[str, Any]:  # noqa: ARG002  # one signature for both kinds
        ids = emission.tokens if self.with_ids else None
        return chat_delta({"content": emission.text}, emission.finish, emission.stop_string, ids)

    def whole(
        self,
        text: str,
        ids: Sequence[int],
        last: Emission,
        prompt: Sequence[int],  # noqa: ARG002  # one signature for both kinds
    ) -> dict[str, Any]:
        return {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "logprobs": None,
            "finish_reason": last.finish,
            "stop_reason": last.stop_string,
            "token_ids": list(ids) if self.with_ids else None,
        }


class Reply(Response):
    """The answer to one request; the request is queued when the answer begins."""

    def __init__(
        self,
        submit: Callable[[], Ticket],
        refused: Callable[[str], None],
        generation: Generation,
        shape: Shape,
        labels: Labels,
        wishes: Wishes,
    ) -> None:
        super().__init__()
        self._submit = submit
        self._refused = refused
        self._generation = generation
        self._shape = shape
        self._labels = labels
        self._wishes = wishes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            ticket = self._submit()
        except QueueFull as error:
            self._refused(error.reason)
            refusal = _failure(f"The queue is full: {error}.", "ServiceUnavailableError", 503)
            refusal.headers["Retry-After"] = RETRY_AFTER_S
            await refusal(scope, receive, send)
            return
        except EngineDead as error:
            await _failure(str(error), "ServiceUnavailableError", 503)(scope, receive, send)
            return
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_until_gone, receive, tasks.cancel_scope)
                if self._wishes.stream:
                    await self._stream(ticket, send)
                else:
                    await (await self._whole(ticket))(scope, receive, send)
                tasks.cancel_scope.cancel()
        finally:
            ticket.close()

    async def _stream(self, ticket: Ticket, send: Send) -> None:
        headers = [*STREAM_HEADERS, *_id_headers(self._generation.id)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        beside = self._shape.beside(self._generation.prompt)
        for choice in self._shape.opening():
            await _send_more(send, event(self._chunk([choice]) | beside))
        interval = StreamInterval(self._wishes.interval_tokens)
        n_output = 0
        broken = False
        async for emissions in ticket.emissions():
            data = []
            for emission in interval.due(emissions):
                if emission.finish == "error":
                    broken = True
                    data.append(event(error_document("the engine failed", "internal_error", 500)))
                    continue
                prompt = self._generation.prompt if n_output == 0 else None
                n_output += len(emission.tokens)
                usage = self._usage(n_output, emission) if self._wishes.usage_always else None
                data.append(event(self._chunk([self._shape.chunk(emission, prompt)], usage)))
                if emission.finish is not None and self._wishes.usage_chunk:
                    data.append(event(self._chunk([], self._usage(n_output, emission))))
            await _send_more(send, b"".join(data))
        await send(
            {"type": "http.response.body", "body": b"" if broken else DONE, "more_body": False}
        )

    async def _whole(self, ticket: Ticket) -> Response:
        texts: list[str] = []
        ids: list[int] = []
        last: Emission | None = None
        async for emissions in ticket.emissions():
            for emission in emissions:
                texts.append(emission.text)
                ids += emission.tokens
                last = emission
        assert last is not None
        if last.finish == "error":
            return _failure("the engine failed", "internal_error", 500)
        prompt = self._generation.prompt
        choice = self._shape.whole("".join(texts), ids, last, prompt)
        usage = self._usage(len(ids), last)
        document = self._document(self._shape.whole_object, [choice], usage)
        answer = JSONResponse(document | self._shape.beside(prompt))
        answer.raw_headers += _id_headers(self._generation.id)
        return answer

    def _usage(self, n_output: int, emission: Emission) -> dict[str, Any]:
        return usage_document(len(self._generation.prompt), n_output, emission.n_cached)

    def _chunk(
        self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        return self._document(self._shape.chunk_object, choices, usage)

    def _document(
        self, kind: str, choices: list[dict[str, Any]], usage: dict[str, Any] | None
    ) -> dict[str, Any]:
        return {
            "id": self._labels.id,
            "object": kind,
            "created": self._labels.created,
            "model": self._labels.model,
            "choices": choices,
            "usage": usage,
        }


def _id_headers(request_id: str) -> list[tuple[bytes, bytes]]:
    """The request's id as vLLM echoes it; a header can hold no other characters."""
    return [(b"x-request-id", request_id.encode())] if request_id.isascii() else []


async def _until_gone(receive: Receive, others: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    others.cancel()


async def _send_more(send: Send, data: bytes) -> None:
    if data:
        await send({"type": "http.response.body", "body": data, "more_body": True})


def _failure(message: str, kind: str, code: int) -> Response:
    return JSONResponse(error_document(message, kind, code), code)
