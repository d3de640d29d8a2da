"""A published design for 20,000 open conversations: a 70B model in 8 bits on nodes of eight."""

from __future__ import annotations

from typing import Final

from tertulia.planner.preset import GB, MILLION, TB, Line, Preset

_MS: Final = 1e3
_TEN_TIMES: Final = {"open_conversations": 200_000}
_SIZES: Final = {"0.5M": 0.5e6, "1M": 1e6, "2M": 2e6, "8M": 8e6}

VALUES: Final = {
    "open_conversations": 20_000,
    "turn_gap_s": 60,
    "peak_factor": 2.5,  # the day's mean is 40 % of its peak
    "turns_per_user": 10,
    "system_tokens": 1_500,
    "history_tokens": 1_350,
    "new_tokens": 150,
    "answer_tokens": 400,
    "cached_share": 0.8,
    "small_share": 0.0,
    "utilisation": 0.6,
    "spare_share": 0.0,
    "spare_replicas": 1,
    "accelerators_per_server": 8,
    "stored_bytes": 2_700,
    "large.params": 70.6e9,
    "large.layers": 80,
    "large.kv_heads": 8,
    "large.head_dim": 128,
    "large.weight_bytes_each": 1,
    "large.kv_bytes_each": 1,
    "large.accelerators_per_replica": 8,
    "large.memory_bytes": 80e9,
    "large.reserved_bytes": 8e9,
    "large.bandwidth": 3.35e12,
    "large.flops": 1_979e12,
    "large.efficiency": 0.6,
    "large.flops_share": 0.4,
    "large.batch": 256,
    "large.kept_tokens": 3_200,  # as long as the answer is half written
    "large.chunk_tokens": 512,
    "large.price_per_hour": 3.5,
}

CAPACITY: Final = (
    Line("kv_token_kib", 160, "large.kv_bytes_per_token", times=1 / 1024),
    Line("weights_gpu_gb", 8.8, "large.weights_bytes_each", times=GB),
    Line("kv_room_gb", 63.2, "large.kv_room_bytes_each", times=GB),
    Line("kv_tokens_node_m", 3.08, "large.kv_tokens", times=MILLION),
    Line("turns_s", 333, "peak_turns_per_s"),
    Line("out_tok_s", 133_333, "answer_tokens_per_s"),
    Line("prompt_tok_s", 1_000_000, "prompt_tokens_per_s"),
    Line("uncached_tok_s", 200_000, "uncached_tokens_per_s"),
    Line("step_bytes_gb", 25.6, "large.step_bytes_each", times=GB),
    Line("step_ms", 12.7, "large.step_s", times=_MS),
    Line("decode_node", 20_098, "large.decode_tokens_per_s"),
    Line("prefill_node", 44_850, "large.prefill_tokens_per_s"),
    Line("nodes_busy", 11.1, "large.busy"),
    Line("nodes", 20, "replicas"),
    Line("in_flight", 1_698, "large.in_flight"),
    Line("idle_m", 58.6, "large.idle_tokens", times=MILLION),
    Line("free_m", 56.3, "large.free_tokens", times=MILLION),
    Line("chunk_512_ms", 11, "large.chunk_s", times=_MS),
    Line("chunk_2048_ms", 46, "large.chunk_s", times=_MS, but={"large.chunk_tokens": 2_048}),
    Line("chunk_16000_ms", 360, "large.chunk_s", times=_MS, but={"large.chunk_tokens": 16_000}),
    Line("itl_with_512", 25, "large.gap_with_chunk_s", times=_MS),
    Line(
        "itl_with_2048",
        None,
        "large.gap_with_chunk_s",
        times=_MS,
        but={"large.chunk_tokens": 2_048},
    ),
    Line("largest_chunk_50ms", None, "large.largest_chunk_tokens"),
    Line("cost_day", 13_440, "accelerator_cost_per_day"),
    Line("turns_day", 11_500_000, "turns_per_day"),
    Line("cost_turn", 0.0012, "cost_per_turn"),
    Line("api_turn", 0.0085, "api_cost_per_turn"),
    Line("api_day", 98_000, "api_cost_per_day"),
    Line("storage_gb_day", 31, "stored_bytes_per_day", times=GB),
    Line("nodes_10x", 200, "replicas", but=_TEN_TIMES, note="its own program gives 186"),
    Line("idle_10x_m", 590, "large.idle_tokens", times=MILLION, but=_TEN_TIMES),
    Line(
        "idle_10x_tb",
        97,
        "large.idle_bytes",
        times=TB,
        but={**_TEN_TIMES, "large.idle_tokens": 590e6},
        note="tokens as it had rounded them",
    ),
)

HITS: Final = (
    *(
        Line(
            f"hit_{size}_{way}",
            printed,
            "hits_simulated",
            but={"cache_tokens": _SIZES[size], **strays},
        )
        for size, random, affinity in (
            ("0.5M", 0.45, 0.68),
            ("1M", 0.48, 0.84),
            ("2M", 0.52, 0.95),
            ("8M", 0.59, 0.96),
        )
        for way, printed, strays in (
            ("random", random, {"stray_share": 1.0}),
            ("affinity", affinity, {"stray_share": 0.0}),
        )
    ),
    Line("hit_ceiling", None, "hits_at_most"),
    Line("hit_floor", None, "hits_at_least"),
    Line("avg_idle_history", 3_700, "idle_history_tokens"),
    Line("cache_needed_m", 1.9, "cache_wanted_tokens", times=MILLION),
)

EXERCISES: Final = (
    Line("ex1_nodes", None, "replicas", but={"turn_gap_s": 20}),
    Line("ex2_prefill_share", None, "large.prefill_share", but={"cached_share": 0.5}),
    *(
        Line(
            f"ex3_spill10_points {size}",
            None,
            "hits_lost",
            times=100,
            but={"cache_tokens": tokens, "stray_share": 0.1},
            note="by one throw of the dice",
        )
        for size, tokens in _SIZES.items()
    ),
    Line(
        "ex4_tokens_node_m",
        None,
        "large.kv_tokens",
        times=MILLION,
        but={"large.weight_bytes_each": 2, "large.kv_bytes_each": 2},
    ),
)

PRESET_003: Final = Preset(
    name="seed-003",
    says="20,000 open conversations on a 70B model, in 8 bits on nodes of eight",
    values=VALUES,
    models={"large": ("llama-3.1-70b", "fp8", 8), "small": ("llama-3.1-8b", "bf16", 1)},
    lines=(*CAPACITY, *HITS, *EXERCISES),
)
