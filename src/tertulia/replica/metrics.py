"""The engine's counters under vLLM's metric names, so that one reader understands every replica.

It must never carry text, salts or request ids.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tertulia.replica.generation import Emission, EngineCounts

FIRST_TOKEN_S = (0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 2, 5, 10, 20, 40, 80)
BETWEEN_TOKENS_S = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5)
WHOLE_S = (0.1, 0.3, 0.5, 1, 2, 5, 10, 20, 40, 60, 120, 240, 480, 960)
LABELS = ("model_name", "engine")


class ReplicaMetrics:
    """What `GET /metrics` shows."""

    def __init__(self, model: str, counts: Callable[[], EngineCounts]) -> None:
        self._registry = CollectorRegistry()
        self._labels = (model, "0")
        self._finished = Counter(
            "vllm:request_success",
            "Requests that ended, by reason.",
            (*LABELS, "finished_reason"),
            registry=self._registry,
        )
        for finish in ("stop", "length", "repetition", "abort", "error"):
            self._finished.labels(*self._labels, finish)  # shown at 0 from the start
        self._refused = Counter(
            "vllm:admission_rejections",
            "Requests refused at the door.",
            (*LABELS, "reason"),
            registry=self._registry,
        )
        for reason in ("max_num_queued_reqs", "max_num_queued_tokens"):
            self._refused.labels(*self._labels, reason)
        self._first = self._histogram(
            "vllm:time_to_first_token_seconds", "From arrival to the first token.", FIRST_TOKEN_S
        )
        self._between = self._histogram(
            "vllm:inter_token_latency_seconds", "Between two tokens of one reply.", BETWEEN_TOKENS_S
        )
        self._queued = self._histogram(
            "vllm:request_queue_time_seconds", "From arrival to a slot.", FIRST_TOKEN_S
        )
        self._prefilled = self._histogram(
            "vllm:request_prefill_time_seconds", "From a slot to the first token.", FIRST_TOKEN_S
        )
        self._whole = self._histogram(
            "vllm:e2e_request_latency_seconds", "From arrival to the last token.", WHOLE_S
        )
        self._registry.register(_EngineCollector(self._labels, counts))

    def saw(self, emission: Emission) -> None:
        if emission.tokens:
            if emission.is_first:
                self._first.observe(emission.since_arrival_s)
                self._queued.observe(emission.queued_s)
                self._prefilled.observe(emission.since_arrival_s - emission.queued_s)
            else:
                self._between.observe(emission.since_last_s)
        if emission.finish is not None:
            self._finished.labels(*self._labels, emission.finish).inc()
            self._whole.observe(emission.since_arrival_s)

    def refused(self, reason: str) -> None:
        self._refused.labels(*self._labels, reason).inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
        family = Histogram(name, meaning, LABELS, buckets=buckets, registry=self._registry)
        return family.labels(*self._labels)


class _EngineCollector:
    """Reads the engine's own counts when asked, so that they are kept in one place."""

    def __init__(self, labels: tuple[str, str], counts: Callable[[], EngineCounts]) -> None:
        self._labels = labels
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        now = self._counts()
        n_held = now.n_blocks - now.n_blocks_free - now.n_blocks_idle
        gauges = {
            "vllm:num_requests_running": ("Requests in the batch.", now.n_running),
            "vllm:num_requests_waiting": ("Requests without a slot.", now.n_waiting),
            "vllm:kv_cache_usage_perc": (
                "Share of the cache in use, 1 is full.",
                n_held / max(1, now.n_blocks),
            ),
            "tertulia:kv_blocks_free": ("Blocks that hold nothing.", now.n_blocks_free),
            "tertulia:kv_blocks_idle": ("Blocks kept for reuse.", now.n_blocks_idle),
            "tertulia:kv_blocks_host": ("Blocks kept in ordinary memory.", now.n_blocks_host),
            "tertulia:kv_blocks_disk": ("Blocks kept on disk.", now.n_blocks_disk),
            "tertulia:step_tokens": ("Prompt tokens that fit into a step.", now.step_tokens),
        }
        yield self._cache(now)
        for name, (meaning, value) in gauges.items():
            gauge = GaugeMetricFamily(name, meaning, labels=LABELS)
            gauge.add_metric(self._labels, value)
            yield gauge
        totals = {
            "vllm:prompt_tokens": ("Prompt tokens admitted.", now.n_prompt_tokens),
            "vllm:prompt_tokens_cached": ("Prompt tokens not computed.", now.n_prefix_hits),
            "vllm:generation_tokens": ("Tokens generated.", now.n_generated_tokens),
            "vllm:prefix_cache_queries": ("Tokens looked up.", now.n_prompt_tokens),
            "vllm:prefix_cache_hits": ("Tokens found.", now.n_prefix_hits),
            "vllm:num_preemptions": ("Sequences preempted.", now.n_preempted),
            "tertulia:engine_steps": ("Forward passes.", now.n_steps),
        }
        for name, (meaning, value) in totals.items():
            total = CounterMetricFamily(name, meaning, labels=LABELS)
            total.add_metric(self._labels, value)
            yield total

    def _cache(self, now: EngineCounts) -> Metric:
        meaning = "The cache's blocks and their size in tokens, as labels; always 1."
        labels = (*LABELS, "block_size", "num_gpu_blocks")
        gauge = GaugeMetricFamily("vllm:cache_config_info", meaning, labels=labels)
        gauge.add_metric((*self._labels, str(now.block_tokens), str(now.n_blocks)), 1)
        return gauge
