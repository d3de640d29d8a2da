"""What an operator may say, with what is assumed if he does not, and what makes no sense.

Every value has a unit: counts, seconds, bytes, dollars. It must never hold a figure that follows
from others; those are in `pool_figures` and `fleet_figures`.
"""

from __future__ import annotations

from typing import Final

from tertulia.core.quota import MILLI, WEIGHTS
from tertulia.planner.sheet import Input

_UNITS: Final = WEIGHTS["units"]
_MANY: Final = 1e12
_DAY_S: Final = 86_400.0

TRAFFIC: Final = (
    Input("users", "people/day", 10_000, 1, 1e10, "People who use it on a day."),
    Input("turns_per_user", "turns/day", 10, 0.01, 10_000, "Messages of each of them in a day."),
    Input("peak_factor", "×", 3, 1, 100, "The busiest hour over the mean of the day."),
    Input("think_s", "s", 60, 0, _DAY_S, "From the end of an answer to the next message."),
    Input(
        "open_conversations",
        "conversations",
        0,
        0,
        1e10,
        "Conversations open at the peak. If given, turns follow from it and not from users.",
    ),
    Input("free_share", "share", 0.6, 0, 1, "Turns of plans that the overload ladder may act on."),
    Input("small_share", "share", 0.0, 0, 1, "Turns that the small model answers."),
)

PROMPT: Final = (
    Input("system_tokens", "tokens", 500, 0, 1e7, "The system prompt, the same for everybody."),
    Input("history_tokens", "tokens", 2_400, 0, 1e7, "Earlier turns in a prompt, on average."),
    Input("new_tokens", "tokens", 100, 1, 1e7, "The new message, on average."),
    Input("answer_tokens", "tokens", 400, 1, 1e6, "An answer, on average."),
    Input("max_answer_tokens", "tokens", 2_000, 1, 1e6, "The longest answer a plan allows."),
    Input(
        "hit_share",
        "share",
        0.9,
        0,
        1,
        "Of a prompt before its new message: how much of it the prefix cache holds.",
    ),
    Input("context_limit", "tokens", 32_000, 1, 1e7, "The longest context on offer."),
)

TARGETS: Final = (
    Input("gap_target_s", "s", 0.050, 1e-4, 60, "Longest time between two tokens of a stream."),
    Input("first_token_target_s", "s", 1.0, 1e-3, 600, "Longest time to the first token."),
    Input("cost_target", "$/1,000 turns", 1.5, 0, 1e6, "What 1,000 turns may cost."),
)

FLEET: Final = (
    Input("utilisation", "share", 0.7, 0.01, 1, "How busy replicas may be at the peak."),
    Input("spare_share", "share", 0.0, 0, 10, "More than the work needs, for failures and spikes."),
    Input("spare_replicas", "replicas", 1, 0, 1_000, "Replicas that may fail at once (N + this)."),
    Input("accelerators_per_server", "accelerators", 8, 1, 64, "In one host."),
    Input("region_quota", "accelerators", 3_000, 1, 1e7, "What one region can get."),
    Input("cell_turns_per_s", "turns/s", 300, 0.1, 1e5, "What one cell's stores take."),
    Input("load_s", "s", 600, 0, _DAY_S, "From the wish for a replica until it answers."),
    Input("gateway_streams", "streams", 10_000, 1, 1e6, "Open streams of one gateway."),
    Input("link_bytes_per_s", "B/s", 50e9, 1e6, 1e13, "Between two replicas, for a moved cache."),
    Input("hops_s", "s", 0.113, 0, 60, "Network, limits, checks, stores and the line, together."),
)

STORAGE: Final = (
    Input("stored_bytes", "B", 2_500, 1, 1e7, "Kept of a turn: both texts and what belongs."),
    Input("writes_per_turn", "writes", 2, 0, 1_000, "To the conversation store."),
    Input("retention_days", "days", 30, 1, 36_500, "How long conversations are kept."),
    Input("copies", "copies", 3, 1, 20, "Of everything that is stored."),
)

MONEY: Final = (
    Input("team_per_year", "$/year", 0, 0, _MANY, "People who run it."),
    Input("api_new", "$/M tokens", 3.0, 0, 1e6, "A hosted model: new tokens of a prompt."),
    Input("api_cached", "$/M tokens", 0.30, 0, 1e6, "A hosted model: cached tokens."),
    Input("api_answer", "$/M tokens", 15.0, 0, 1e6, "A hosted model: tokens of an answer."),
)

# Budgets and lines: small sums about single users, beside the fleet's.
LIMITS: Final = (
    Input("budget_units", "units", 25_000, 1, _MANY, "A plan's budget in weighted units."),
    Input("refill_s", "s", 10_800, 1, 1e9, "In which a whole budget comes back."),
    Input("day_tokens", "tokens", 30_000, 1, _MANY, "A plan's plain tokens a day."),
    Input("new_weight", "units", _UNITS.new / MILLI, 0, 1e3, "What a new token of a prompt costs."),
    Input("cached_weight", "units", _UNITS.cached / MILLI, 0, 1e3, "What a cached token costs."),
    Input("answer_weight", "units", _UNITS.output / MILLI, 0, 1e3, "What a token answered costs."),
    Input("burst_turns", "turns", 30, 1, 1e6, "Turns that one user sends at once."),
    Input("huge_prompt_tokens", "tokens", 30_000, 1, 1e7, "A pasted document."),
    Input("spike_turns_per_s", "turns/s", 70, 0, 1e6, "Asked for while a spike lasts."),
    Input("spike_s", "s", 60, 0, _DAY_S, "How long a spike lasts."),
)

# For the share of prefix hits, if it is simulated.
CONVERSATIONS: Final = (
    Input("hit_replicas", "replicas", 8, 1, 1_000, "Replicas among which turns are spread."),
    Input("hit_conversations", "conversations", 4_000, 1, 50_000, "Conversations played."),
    Input("turns_per_conversation", "turns", 8, 1, 1_000, "Turns of one conversation."),
    Input("cache_tokens", "tokens", 8e6, 0, _MANY, "KV cache of one replica, host memory too."),
    Input("stray_share", "share", 0.0, 0, 1, "Turns that go to any replica: 1 is random routing."),
    Input("seed", "", 1, 0, 2**31, "Of the dice."),
    Input("cold_answer_s", "s", 194.5, 0, _DAY_S, "A measured prompt read without a cache."),
    Input("warm_answer_s", "s", 0.2, 1e-6, _DAY_S, "The same prompt read from the cache."),
)

POOL: Final = (
    Input("params", "parameters", 70e9, 1e6, 1e13, "Of the model; the active ones, if sparse."),
    Input("layers", "layers", 80, 1, 1_000, "Of the model."),
    Input("kv_heads", "heads", 8, 1, 1_000, "Key and value heads of a layer."),
    Input("head_dim", "", 128, 1, 4_096, "Numbers in one of them."),
    Input("weight_bytes_each", "B", 2, 0.1, 8, "A parameter: 2 in 16 bits, 1 in 8."),
    Input("kv_bytes_each", "B", 2, 0.1, 8, "A number of the KV cache."),
    Input("accelerators_per_replica", "accelerators", 4, 1, 64, "Tensor parallelism."),
    Input("memory_bytes", "B", 80e9, 1e9, 1e13, "Of one accelerator."),
    Input("reserved_bytes", "B", 8e9, 0, 1e12, "Of it: activations and the runtime."),
    Input("bandwidth", "B/s", 3.35e12, 1e9, 1e15, "Of one accelerator's memory."),
    Input("flops", "FLOP/s", 989.4e12, 1e9, 1e18, "Of one accelerator, dense, at the precision."),
    Input("price_per_hour", "$/h", 3.0, 0, 1e5, "One accelerator."),
    Input("efficiency", "share", 0.6, 0.001, 1.2, "Of the bandwidth, in steps of decoding."),
    Input("a_s", "s", 0.0, 0, 10, "What every step costs besides its bytes."),
    Input("b_s", "s", 0.0, 0, 1, "What each sequence adds to a step besides its bytes."),
    Input("flops_share", "share", 0.4, 0.001, 1, "Of the peak, while prompts are read."),
    Input("p0_s", "s", 0.0, 0, 10, "What a pass of its own over a prompt costs, however short."),
    Input("p2_s", "s", 0.0, 0, 1, "Attention: seconds for each pair of prompt tokens."),
    Input("slots", "sequences", 256, 1, 100_000, "The most that a replica runs at once."),
    Input(
        "reserved_sequence_tokens",
        "tokens",
        4_000,
        1,
        1e7,
        "What an engine without pages would set aside for each sequence.",
    ),
)

FLEET_INPUTS: Final = {
    one.name: one
    for part in (TRAFFIC, PROMPT, TARGETS, FLEET, STORAGE, MONEY, LIMITS, CONVERSATIONS)
    for one in part
}
POOL_INPUTS: Final = {one.name: one for one in POOL}
