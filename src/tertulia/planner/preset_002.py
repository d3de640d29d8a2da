"""A published design for a million messages a day: batches bounded by the KV cache's memory.

Some of what it prints rests on inputs that it does not print; those are marked "inferred".
"""

from __future__ import annotations

from typing import Final

from tertulia.planner.preset import GB, Line, Preset

_MS: Final = 1e3
_PER_DAY: Final = {"system_tokens": 1_000, "history_tokens": 700, "new_tokens": 100}  # 1,800
_TURN: Final = {**_PER_DAY, "answer_tokens": 640}
_ROUNDED: Final = {"large.decode_tokens_per_s": 5_000}

VALUES: Final = {
    "users": 1e5,
    "turns_per_user": 10,
    "peak_factor": 3,  # inferred
    "system_tokens": 1_000,
    "history_tokens": 900,  # inferred: prompt and reply are 2,500 together
    "new_tokens": 100,
    "answer_tokens": 500,  # inferred
    "max_answer_tokens": 2_000,
    "cached_share": 0.5,  # inferred: 1,000 tokens of each prompt are new
    "small_share": 0.0,
    "utilisation": 0.7,  # inferred
    "spare_share": 0.0,
    "spare_replicas": 0,
    "accelerators_per_server": 4,
    "gap_target_s": 0.1,  # it names none
    "spike_turns_per_s": 70,
    "spike_s": 60,
    "day_tokens": 30_000,
    "link_bytes_per_s": 50e9,
    "large.params": 70e9,
    "large.layers": 80,
    "large.kv_heads": 8,
    "large.head_dim": 128,
    "large.accelerators_per_replica": 4,
    "large.memory_bytes": 80e9,
    "large.reserved_bytes": 7.5e9,  # inferred: 320 − 140 − 30 = 150 GB are free
    "large.bandwidth": 3.35e12,
    "large.efficiency": 0.6,  # inferred
    "large.prefill_flops": 250e12,  # inferred from 0.14 s for 1,000 tokens
    "large.context_tokens": 2_500,
    "large.reserved_sequence_tokens": 4_000,
    "large.chunk_tokens": 256,
    "large.price_per_hour": 2.5,
}

CAPACITY: Final = (
    Line("kv_tokens", 458_000, "large.kv_tokens"),
    Line("fit_reserved", 114, "large.batch_reserved"),
    Line("fit_paged", 183, "large.batch_by_memory"),
    Line("paged_gain_pct", 60, "large.paging_gain", times=100),
    Line("shared_prefix_mb", 330, "large.shared_prefix_bytes", times=1e-6),
    Line("private_prefix_gb", 60, "large.private_prefix_bytes", times=GB),
    Line("private_prefix_share_pct", 40, "large.private_prefix_share", times=100),
    Line("step_1_ms", 18, "large.step_s", times=_MS, but={"large.batch": 1}),
    Line("tok_s_1", 57, "large.single_tokens_per_s"),
    Line("step_183_ms", 36, "large.step_s", times=_MS),
    Line("tok_s_each", 28, "large.stream_tokens_per_s"),
    Line("tok_s_replica", 5_000, "large.decode_tokens_per_s"),
    Line(
        "batch_gain",
        88,
        "large.batch_gain",
        but={**_ROUNDED, "large.single_tokens_per_s": 57},
        note="both as it had rounded them; 88.9 without",
    ),
    Line("prefill_1000_s", 0.14, "large.prefill_s"),
    Line("kv_move_ms", 7, "large.move_s", times=_MS),
    Line("peak_rps", 35, "peak_turns_per_s"),
    Line(
        "prefill_replicas",
        4.9,
        "large.busy_prefill",
        but={"peak_turns_per_s": 35},
        note="the peak as it had rounded it",
    ),
    Line("replicas", 12, "replicas"),
    Line(
        "full_load_rps",
        50,
        "large.full_turns_per_s",
        but=_ROUNDED,
        note="5,000 tokens/s as it had rounded them",
    ),
    Line("gpus", 48, "accelerators"),
    Line("spike_waiting", 1_200, "spike_waiting", but=_ROUNDED, note="as above"),
    Line("spike_wait_s", 24, "spike_wait_s", but=_ROUNDED, note="as above"),
    Line("gpu_cost_day", 2_880, "accelerator_cost_per_day"),
    Line("cents_per_message", 0.29, "cost_per_turn", times=100),
    Line("chunk_256_ms", None, "large.chunk_s", times=_MS),
)

LIMITS: Final = (
    Line("reserve_002", 3_800, "reserved_tokens", but=_PER_DAY),
    Line("settle_002", 2_440, "settled_tokens", but=_TURN),
    Line("refund_002", 1_360, "refunded_tokens", but=_TURN),
    Line("free_msgs_per_day_002", None, "turns_per_day_allowed", but=_TURN),
)

PRESET_002: Final = Preset(
    name="seed-002",
    says="a million messages a day on a 70B model, in 16 bits",
    values=VALUES,
    models={"large": ("llama-3.1-70b", "bf16", 4), "small": ("llama-3.1-8b", "bf16", 1)},
    lines=(*CAPACITY, *LIMITS),
)
