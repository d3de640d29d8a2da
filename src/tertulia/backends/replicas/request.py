"""The requests that a replica is sent, in the dialect of its engine."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import SplitResult

from tertulia.core.engines import EngineKind
from tertulia.core.types import GenerateRequest

# Engines take seeds of 63 bits.
_SEEDS = 2**63


def request_bytes(
    url: SplitResult,
    key: str | None,
    request: GenerateRequest,
    engine: EngineKind,
    *,
    priorities: bool,
) -> bytes:
    """The completion request as one HTTP message; with `priorities` it names its lane."""
    sampling = request.sampling
    body: dict[str, Any] = {
        "model": request.model,
        "prompt": request.prompt,
        "max_tokens": request.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
    }
    if engine.has_cache_salt:
        body["cache_salt"] = request.cache_salt
    if priorities:
        body["priority"] = engine.priority_sign * request.priority
    if engine.has_shared_prefix:
        body["cache_shared_tokens"] = request.shared_tokens
        if request.session_id is not None:
            body["session_id"] = request.session_id
    if engine.id_field:
        body[engine.id_field] = request.request_id
    if sampling.seed is not None:
        # An engine that begins its dice anew with each request would throw those of the reply's
        # beginning once more: a continuation gets others, as certain ones.
        shift = 0 if engine.draws_by_position else request.said_tokens
        body["seed"] = (sampling.seed + shift) % _SEEDS
    payload = json.dumps(body, separators=(",", ":")).encode()
    lines = [
        f"POST {url.path.rstrip('/')}/v1/completions HTTP/1.1",
        f"Host: {url.netloc}",
        "Content-Type: application/json",
        f"Content-Length: {len(payload)}",
        f"X-Request-Id: {request.request_id}",
        *(f"{name}: {value}" for name, value in bearer(key).items()),
    ]
    assert not any("\r" in line or "\n" in line for line in lines), "a header can't hold a line end"
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + payload


def abort_body(request_id: str, engine: EngineKind) -> dict[str, Any]:
    """What the engine's abort path takes."""
    given = f"{engine.id_prefix}{request_id}"
    return {engine.abort_field: [given] if engine.abort_takes_list else given}


def forget_body(owner: str, conversation_id: str | None) -> dict[str, Any]:
    """What the path takes by which an engine forgets: the names that `request_bytes` gave it."""
    body = {"cache_salt": owner}
    return body if conversation_id is None else {**body, "session_id": conversation_id}


def bearer(key: str | None) -> dict[str, str]:
    """The header that shows a replica's key, where it has one."""
    return {"Authorization": f"Bearer {key}"} if key else {}
