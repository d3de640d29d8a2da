"""How engines differ: the one table. Whoever adds an engine adds a row, and no other line.

It holds data alone. A missing name means that the engine has nothing of the kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

EngineName = Literal["tertulia", "vllm", "sglang", "llama-server", "openai-compatible"]


@dataclass(frozen=True, slots=True)
class Metrics:
    """Names in an engine's Prometheus text. What is not there is unknown, never 0."""

    running: str
    waiting: str
    cache_used_share: str
    done_tokens: tuple[str, ...]  # counters that grow while it computes
    generated_tokens: str
    # Prompt tokens that were found in its cache, and those that were looked up.
    cache_hits: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class EngineKind:
    """What one kind of engine can do.

    `refusal` says why replies can't be generated with it: without token ids, both in and out, a
    reply that breaks off could not go on elsewhere, and nobody would know what to charge.
    `priority_sign` is 1 where the lower goes first, -1 where the higher does, and 0 for none;
    `priority_is_asked`: it may refuse priorities, and is tried once. An abort is a POST of
    `{abort_field: id}`, the id with `id_prefix`; closing the connection must do where it is not
    allowed. What prompts left in its cache is dropped by a POST of their owner's salt to
    `forget_path`; an engine without one keeps it, out of everybody else's reach, until it needs the
    room. `has_shared_prefix`: the system prompt is cached once for all, and sessions have names.
    """

    refusal: str = ""
    priority_sign: int = 0
    priority_is_asked: bool = False
    abort_path: str = ""
    abort_field: str = ""
    abort_takes_list: bool = False
    forget_path: str = ""
    id_prefix: str = ""
    id_field: str = ""  # of the body, where the header X-Request-Id is not taken
    has_cache_salt: bool = False
    has_shared_prefix: bool = False
    has_tokenize: bool = False
    draws_by_position: bool = False  # a seed means the same in a reply that is continued
    metrics: Metrics | None = None


_VLLM_METRICS: Final = Metrics(
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    cache_used_share="vllm:kv_cache_usage_perc",
    done_tokens=(
        "vllm:generation_tokens_total",
        "vllm:iteration_tokens_total_sum",  # in mid-prompt too
        "tertulia:engine_steps_total",
    ),
    generated_tokens="vllm:generation_tokens_total",
    cache_hits=("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"),
)

ENGINES: Final[Mapping[EngineName, EngineKind]] = {
    "tertulia": EngineKind(
        priority_sign=1,
        abort_path="/inference/v1/abort_requests",
        abort_field="request_ids",
        abort_takes_list=True,
        forget_path="/inference/v1/forget",
        id_prefix="cmpl-",
        has_cache_salt=True,
        has_shared_prefix=True,
        has_tokenize=True,
        draws_by_position=True,
        metrics=_VLLM_METRICS,
    ),
    "vllm": EngineKind(
        priority_sign=1,
        priority_is_asked=True,  # only with --scheduling-policy priority
        abort_path="/inference/v1/abort_requests",  # only with --enable-scale-out
        abort_field="request_ids",
        abort_takes_list=True,
        id_prefix="cmpl-",
        has_cache_salt=True,
        has_tokenize=True,
        metrics=_VLLM_METRICS,
    ),
    "sglang": EngineKind(
        priority_sign=-1,
        priority_is_asked=True,  # only with --enable-priority-scheduling
        abort_path="/abort_request",
        abort_field="rid",
        id_field="rid",
        has_cache_salt=True,
        has_tokenize=True,
        metrics=Metrics(
            running="sglang:num_running_reqs",
            waiting="sglang:num_queue_reqs",
            cache_used_share="sglang:token_usage",
            done_tokens=("sglang:generation_tokens_total", "sglang:prompt_tokens_total"),
            generated_tokens="sglang:generation_tokens_total",
        ),
    ),
    "llama-server": EngineKind(
        refusal="llama-server tells no token ids on /v1/completions, and loses some on its own path"
    ),
    "openai-compatible": EngineKind(
        refusal="the interface of OpenAI takes and gives texts, and no token ids"
    ),
}


def refusal_of(kind: EngineName) -> str:
    """Why an engine of this kind can't be used, in a sentence, or nothing if it can."""
    reason = ENGINES[kind].refusal
    if not reason:
        return ""
    usable = ", ".join(name for name, engine in ENGINES.items() if not engine.refusal)
    return f"{reason}, so that a reply that breaks off could not go on elsewhere; use {usable}"
