"""The shapes of vLLM's HTTP dialect: what a request may hold and how each answer is written.

It must never accept a field it would then ignore where that changes the reply; harmless ones pass.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tertulia.core.types import Role

TokenId = Annotated[int, Field(ge=0, strict=True)]
StopString = Annotated[str, Field(min_length=1, max_length=256)]

SEED_BITS = 63  # JSON readers agree on integers up to here
MAX_STOPS = 16
SALT_CHARS = 1024  # as in vLLM
PRIORITY = 2**31


class BadRequest(Exception):
    """The request cannot be served; `field` names what is wrong with it."""

    def __init__(self, message: str, field: str | None) -> None:
        super().__init__(message)
        self.field = field


class StreamOptions(BaseModel):
    """What a stream reports besides text."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class SamplingBody(BaseModel):
    """The fields that both kinds of completion share."""

    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=2)] | None = None
    seed: Annotated[int, Field(ge=-(2**SEED_BITS), lt=2**SEED_BITS)] | None = None
    stop: StopString | Annotated[list[StopString], Field(max_length=MAX_STOPS)] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    priority: Annotated[int, Field(ge=-PRIORITY, lt=PRIORITY)] = 0
    cache_salt: Annotated[str, Field(min_length=1, max_length=SALT_CHARS)] | None = None
    # So many of the prompt's first tokens hold nothing of a person: they are cached once, for all.
    cache_shared_tokens: Annotated[int, Field(ge=0)] = 0
    session_id: Annotated[str, Field(min_length=1, max_length=SALT_CHARS)] | None = None
    return_token_ids: bool | None = None
    request_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    # Served only at the value that means "no": anything else would change the reply.
    n: Literal[1] | None = 1
    logit_bias: dict[str, float] | None = Field(default=None, max_length=0)
    presence_penalty: Annotated[float, Field(ge=0, le=0)] | None = 0
    frequency_penalty: Annotated[float, Field(ge=0, le=0)] | None = 0

    @property
    def stops(self) -> tuple[str, ...]:
        if self.stop is None:
            return ()
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


class CompletionBody(SamplingBody):
    """`POST /v1/completions`."""

    prompt: Annotated[list[TokenId], Field(min_length=1)] | Annotated[str, Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1, strict=True)] | None = 16  # OpenAI's default
    echo: Literal[False] | None = False
    logprobs: None = None
    suffix: Literal[""] | None = None
    best_of: Literal[1] | None = 1


class TextPart(BaseModel):
    """One part of a message's content; text is the only kind there is here."""

    type: Literal["text"]
    text: str


class ChatMessage(BaseModel):
    """One message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    @property
    def template_role(self) -> Role:
        """`developer` is the newer name of `system`, which no template knows."""
        return "system" if self.role == "developer" else self.role

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class ChatBody(SamplingBody):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=4096)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    tools: Annotated[list[Any], Field(max_length=0)] | None = None
    logprobs: Literal[False] | None = False


class TokenizeBody(BaseModel):
    """`POST /tokenize`: plain text, or a chat as the template writes it."""

    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False


class DetokenizeBody(BaseModel):
    """`POST /detokenize`."""

    tokens: list[TokenId]


class AbortBody(BaseModel):
    """`POST /inference/v1/abort_requests`."""

    request_ids: Annotated[list[str], Field(min_length=1, max_length=1024)]


class ForgetBody(BaseModel):
    """`POST /inference/v1/forget`: an owner's cache, or one conversation's."""

    cache_salt: Annotated[str, Field(min_length=1, max_length=SALT_CHARS)]
    session_id: Annotated[str, Field(min_length=1, max_length=SALT_CHARS)] | None = None


Body = TypeVar("Body", bound=BaseModel)


def read_body(kind: type[Body], data: bytes) -> Body:
    """The checked body, or a `BadRequest` that names the first wrong field and not its content."""
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(str(step) for step in first["loc"]) or None
        top = str(first["loc"][0]) if first["loc"] else None
        where = f"{field}: " if field else ""
        raise BadRequest(f"{where}{first['msg']}", top) from None


def error_document(message: str, kind: str, code: int, field: str | None = None) -> dict[str, Any]:
    """OpenAI's error body."""
    return {"error": {"message": message, "type": kind, "param": field, "code": code}}


def event(document: dict[str, Any]) -> bytes:
    """One server-sent event."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def usage_document(n_prompt: int, n_output: int, n_cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": n_prompt,
        "total_tokens": n_prompt + n_output,
        "completion_tokens": n_output,
        "prompt_tokens_details": {"cached_tokens": n_cached},
    }


def completion_choice(
    text: str,
    finish: str | None,
    stop_string: str | None,
    token_ids: Sequence[int] | None,
    prompt_token_ids: Sequence[int] | None,
) -> dict[str, Any]:
    return {
        "index": 0,
        "text": text,
        "logprobs": None,
        "finish_reason": finish,
        "stop_reason": stop_string,
        "token_ids": None if token_ids is None else list(token_ids),
        "prompt_token_ids": None if prompt_token_ids is None else list(prompt_token_ids),
    }


def chat_delta(
    delta: dict[str, Any], finish: str | None, stop_string: str | None, ids: Sequence[int] | None
) -> dict[str, Any]:
    return {
        "index": 0,
        "delta": delta,
        "logprobs": None,
        "finish_reason": finish,
        "stop_reason": stop_string,
        "token_ids": None if ids is None else list(ids),
    }
