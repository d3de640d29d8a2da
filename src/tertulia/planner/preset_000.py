"""A published design for ten million people a day: a 70B and an 8B model, sized from tokens.

Some of what it prints rests on inputs that it does not print; those are marked "inferred".
"""

from __future__ import annotations

from typing import Final

from tertulia.planner.preset import GB, TB, Line, Preset

_ROUTED: Final = {"small_share": 0.7}
_TEN_TIMES: Final = {"users": 1e8}
_LAB: Final = {"budget_units": 6_000, "worst_units": 900, "refill_s": 60}
_MS: Final = 1e3

VALUES: Final = {
    "users": 1e7,
    "turns_per_user": 10,
    "peak_factor": 3,
    "think_s": 60,
    "system_tokens": 500,  # inferred: the text has the sum of the prompt's parts alone
    "history_tokens": 2_400,
    "new_tokens": 100,  # inferred: the only whole number that gives 390 new tokens
    "answer_tokens": 400,
    "max_answer_tokens": 1_000,
    "hit_share": 0.9,
    "small_share": 0.0,
    "utilisation": 1.0,
    "spare_share": 0.3,
    "spare_replicas": 0,
    "accelerators_per_server": 4,
    "region_quota": 3_000,
    "gateway_streams": 10_000,
    "stored_bytes": 2_500,
    "writes_per_turn": 2,
    "hops_s": 0.113,
    "team_per_year": 2.1e6,  # inferred: with it four printed figures come out
    "large.params": 70e9,
    "large.layers": 80,
    "large.kv_heads": 8,
    "large.head_dim": 128,
    "large.accelerators_per_replica": 4,
    "large.memory_bytes": 80e9,
    "large.reserved_bytes": 0,
    "large.bandwidth": 3.35e12,
    "large.efficiency": 0.62,  # inferred: at the data sheet's rate a step takes 18.8 ms, not 30
    "large.prefill_flops": 400e12,  # inferred
    "large.batch": 100,
    "large.context_tokens": 3_400,
    "large.stream_tokens_per_s": 30,
    "large.price_per_hour": 3.0,
    "large.chunk_tokens": 512,
    "small.params": 8e9,
    "small.layers": 32,
    "small.accelerators_per_replica": 1,
    "small.reserved_bytes": 0,
    "small.prefill_flops": 400e12,
    "small.stream_tokens_per_s": 30,
    "small.decode_tokens_per_s": 2_500,  # inferred
    "small.price_per_hour": 3.0,
}

CAPACITY: Final = (
    Line("msgs_per_s_avg", 1_160, "average_turns_per_s"),
    Line("msgs_per_s_peak", 3_500, "peak_turns_per_s"),
    Line("stream_seconds", 13, "answer_s"),
    Line("streams_at_once", 46_000, "streams"),
    Line("new_prefill_tokens", 390, "uncached_tokens"),
    Line("decode_gpu_s", 0.53, "large.decode_accelerator_s"),
    Line(
        "prefill_gpu_s_per_token",
        None,
        "large.prefill_token_s",
        times=4,
        note="of one accelerator; ours is of a replica of 4",
    ),
    Line("prefill_gpu_s_warm", 0.14, "large.prefill_accelerator_s"),
    Line("prefill_gpu_s_cold", 1.05, "large.cold_accelerator_s"),
    Line("gpu_s_70b", 0.67, "large.accelerator_s"),
    Line("gpu_s_8b", 0.18, "small.accelerator_s"),
    Line("gpu_s_routed_mean", None, "turn_accelerator_s", but=_ROUTED),
    Line("prefill_gpus_warm", 470, "busy_prefill_accelerators"),
    Line("prefill_gpus_cold", 3_600, "busy_cold_accelerators"),
    Line(
        "busy_gpus_70b",
        2_350,
        "busy_accelerators",
        but={"peak_turns_per_s": 3_500, "large.accelerator_s": 0.67},
        note="both factors as it had rounded them; 2,326 without",
    ),
    Line("fleet_70b", 3_000, "accelerators"),
    Line("fleet_routed", 1_500, "accelerators", but=_ROUTED),
    Line("prefill_gpus_routed", 180, "busy_prefill_accelerators", but=_ROUTED),
    Line("prefill_gpus_routed_cold", 1_400, "busy_cold_accelerators", but=_ROUTED),
    Line("one_server_msgs_per_s", 2, "large.cold_turns_per_s", note="batched, without a cache"),
    Line(
        "stage1_busy_pct",
        175_000,
        "large.one_replica_load",
        times=100,
        but={"peak_turns_per_s": 3_500, "large.cold_turns_per_s": 2},
        note="both as it had rounded them",
    ),
    Line("region_pool_msgs_per_s", 4_500, "large.quota_turns_per_s"),
    Line("region_split_large", 3_000, "large.quota_turns_per_s", but={"region_quota": 2_000}),
    Line("region_split_small", 5_700, "small.quota_turns_per_s", but={"region_quota": 1_000}),
    Line("gateway_msgs_per_s", 750, "gateway_turns_per_s"),
    Line("fleet_10x_70b", 30_000, "accelerators", but=_TEN_TIMES),
    Line("fleet_10x_routed", 15_000, "accelerators", but={**_TEN_TIMES, **_ROUTED}),
    Line("regions_10x", 5, "regions", but={**_TEN_TIMES, **_ROUTED}),
    Line("pinned_vs_routed", 4, "large_for_small", note="against the routed mean it is 2.07"),
)

MONEY: Final = (
    Line("cost_per_1000_70b", 2.2, "cost_per_1000"),
    Line("cost_per_1000_routed", 1.1, "cost_per_1000", but=_ROUTED),
    Line("api_cost_per_1000", 8, "api_cost_per_1000"),
    Line("self_share_of_api_pct", 28, "share_of_api", times=100),
    Line("crossover_users_70b", 100_000, "crossover_by_team"),
)

MEMORY: Final = (
    Line("kv_bytes_per_token", 320_000, "large.kv_bytes_per_token"),
    Line("kv_per_conversation_gb", 1.1, "large.kept_bytes", times=GB),
    Line("waiting_conversations", 210_000, "waiting_conversations"),
    Line("kv_between_turns_tb", 230, "idle_bytes", times=TB),
    Line("host_ram_per_server_gb", 300, "idle_bytes_per_server", times=GB),
    Line("writes_per_s", 6_900, "writes_per_s"),
    Line("storage_tb_year", 91, "stored_bytes_per_year", times=TB),
    Line("decode_step_ms", 30, "large.step_s", times=_MS),
    Line("decode_step_200_streams_ms", None, "large.step_s", times=_MS, but={"large.batch": 200}),
    Line("ctx_1m_gb", 320, "large.context_bytes", times=GB, but={"context_limit": 1e6}),
    Line("ctx_128k_gb", 41, "large.context_bytes", times=GB, but={"context_limit": 128_000}),
    Line(
        "ctx_128k_share_of_spare",
        0.25,
        "large.context_share_of_room",
        but={"context_limit": 128_000},
    ),
    Line(
        "ctx_1m_prefill_gpu_s",
        None,
        "large.cold_accelerator_s",
        but={"prompt_tokens": 1e6},
        note="without attention; with it ten times as much",
    ),
    Line("trace_first_token_ms", None, "large.first_token_s", times=_MS),
    Line("prefill_512_ms", 45, "large.chunk_s", times=_MS),
    Line("lab_cache_ratio", None, "cache_speed_up", note="a laptop's lab, not an accelerator"),
)

LIMITS: Final = (
    Line("cost_typical", 2_250, "turn_units"),
    Line("msgs_per_3h", 11, "turns_per_refill"),
    Line("refill_per_s", None, "refill_per_s"),
    Line("burst30_free_allowed", None, "burst_allowed"),
    Line("lab_burst_allowed", 6, "burst_allowed", but=_LAB),
    Line("lab_burst_refused", 24, "burst_refused", but=_LAB),
    Line("lab_burst_retry_s", 3, "burst_retry_s", but=_LAB),
    Line("huge_prompt_ratio", 50, "huge_for_typical", but={"uncached_tokens": 600}),
)

PRESET_000: Final = Preset(
    name="seed-000",
    says="ten million people a day on a 70B and an 8B model, in 16 bits",
    values=VALUES,
    models={"large": ("llama-3.1-70b", "bf16", 4), "small": ("llama-3.1-8b", "bf16", 1)},
    lines=(*CAPACITY, *MONEY, *MEMORY, *LIMITS),
)
