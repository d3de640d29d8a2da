"""What each engine claims of the dialect: the one place that says where they differ.

It must check nothing. An engine that loses a capability fails its check; that is the point.
"""

from dataclasses import dataclass

import httpx2

VLLM = frozenset(
    (
        "abort by id",  # only with --enable-scale-out, see scripts/contract-vllm
        "cache salt",
        "cached tokens",
        "chat continues",
        "choice",
        "grammar",
        "json schema",
        "logit bias",
        "model named",
        "ping",
        "priority",
        "regex",
        "repetition",
        "request id",
        "request id echoed",
        "stream interval",
        "strict stream options",
        "token ids",
        "tokenize",
        "top_k",
        "version",
        "vllm metrics",
        "window",
    )
)
OURS = VLLM
LLAMA_SERVER = frozenset(("cached tokens", "json schema", "logit bias", "top_k", "window"))
CAPABILITIES = {"tertulia": OURS, "llama-server": LLAMA_SERVER, "vllm": VLLM}

# Every name that Tertulia or an operator's panel reads.
METRICS = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:prompt_tokens_cached_total",
    "vllm:num_preemptions_total",
    "vllm:request_success_total",
    "vllm:time_to_first_token_seconds_bucket",
    "vllm:inter_token_latency_seconds_bucket",
)


@dataclass(frozen=True)
class Engine:
    """A running engine, how to reach it, and what it claims."""

    name: str
    http: httpx2.Client
    model: str

    @property
    def claims(self) -> frozenset[str]:
        return CAPABILITIES[self.name]
