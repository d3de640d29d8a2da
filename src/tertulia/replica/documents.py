"""How answers look in vLLM's HTTP dialect: errors, events, choices and usage.

It must never add a field that OpenAI's clients can't read.
"""

import json
from collections.abc import Sequence
from typing import Any


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
