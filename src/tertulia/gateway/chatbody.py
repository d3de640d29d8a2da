"""Reads a chat completion request: what it asks for, and a clear no to what is not served here.

Unknown fields are ignored as OpenAI's clients expect; fields that would change the answer are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from tertulia.core.types import PromptMessage, Role, Sampling
from tertulia.gateway.bodies import body_sha
from tertulia.gateway.problems import Problem, invalid

_ROLES: Final[Mapping[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_MESSAGES = 2_000
_STOPS = 4
_STOP_CHARS = 200
# OpenAI takes 0 for "the likeliest token"; engines refuse it, and draw just that from any trifle.
_LEAST_TOP_P = 1e-6

# What is not served -> the values that ask for nothing and so do no harm.
_NOT_SERVED: Final[Mapping[str, tuple[Any, ...]]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "audio": (),
    "modalities": (["text"], []),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "n": (1,),
    "prediction": (),
    "web_search_options": (),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}


class StreamOptions(BaseModel):
    """What a stream carries beside its text."""

    model_config = ConfigDict(strict=True, extra="ignore")

    include_usage: bool | None = None


class ChatBody(BaseModel):
    """The served part of OpenAI's request."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str = Field(min_length=1, max_length=200)
    messages: list[dict[str, Any]] = Field(min_length=1, max_length=_MESSAGES)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1, le=2**31)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=2**31)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    # The first wrong one is enough: a list of a million took seconds to refuse item by item.
    stop: str | Annotated[list[str], Field(fail_fast=True)] | None = None

    @property
    def includes_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def answer_tokens(self) -> int | None:
        """The caller's own cap on the answer."""
        return self.max_completion_tokens or self.max_tokens


def demand_served(body: ChatBody) -> None:
    """Problem that names the first field that is asked for and not served."""
    for field, harmless in _NOT_SERVED.items():
        value = (body.model_extra or {}).get(field)
        if value is not None and value not in harmless:
            raise invalid(field, f"The field {field} is not supported here.")


def messages_of(body: ChatBody) -> tuple[PromptMessage, ...]:
    """The messages as a prompt has them; leading instructions become one system message."""
    read = [_message(number, message) for number, message in enumerate(body.messages)]
    leading = next((i for i, message in enumerate(read) if message.role != "system"), len(read))
    if leading > 1:
        merged = "\n\n".join(message.content for message in read[:leading])
        read[:leading] = [PromptMessage("system", merged)]
    return tuple(read)


def sampling_of(body: ChatBody) -> Sampling:
    """How to draw; what the caller leaves open is as in the chat itself."""
    usual = Sampling()
    return Sampling(
        temperature=usual.temperature if body.temperature is None else body.temperature,
        top_p=usual.top_p if body.top_p is None else max(body.top_p, _LEAST_TOP_P),
        seed=body.seed,
        stop=_stops(body.stop),
    )


def meaning_of(body: ChatBody, messages: tuple[PromptMessage, ...], sampling: Sampling) -> str:
    """A hash of what is asked for. Streamed or not, it is the same turn (S-21)."""
    return body_sha(
        {
            "chat": [[message.role, message.content] for message in messages],
            "model": body.model,
            "answer": body.answer_tokens,
            "sampling": [sampling.temperature, sampling.top_p, sampling.seed, *sampling.stop],
        }
    )


def _message(number: int, message: Mapping[str, Any]) -> PromptMessage:
    field = f"messages.{number}"
    given = message.get("role")
    role = _ROLES.get(given) if isinstance(given, str) else None
    if role is None:
        sentence = f"The role of {field} must be system, developer, user or assistant."
        raise invalid(f"{field}.role", sentence)
    for unserved in ("tool_calls", "function_call", "audio"):
        if message.get(unserved):
            raise invalid(f"{field}.{unserved}", f"The field {unserved} is not supported here.")
    content = message.get("content")
    if content is None and role == "assistant":
        return PromptMessage(role, "")
    return PromptMessage(role, _text(f"{field}.content", content))


def _text(field: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not content:
        raise invalid(field, f"The field {field} must be a text or a list of text parts.")
    texts = []
    for number, part in enumerate(content):
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        if not isinstance(text, str):
            place = f"{field}.{number}"
            raise invalid(place, f"{place} must be a text part; nothing else is supported here.")
        texts.append(text)
    return "\n".join(texts)


def _stops(stop: str | list[str] | None) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if len(stops) > _STOPS or any(not 0 < len(text) <= _STOP_CHARS for text in stops):
        sentence = f"The field stop takes up to {_STOPS} texts of 1 to {_STOP_CHARS} characters."
        raise Problem("invalid_request", sentence, field="stop")
    return stops
