"""What follows for the fleet: traffic, prompts, memory, storage, money, cells and users' limits.

Formulas alone. `large.` and `small.` are figures of a pool.
"""

from __future__ import annotations

from typing import Final

from tertulia.planner.sheet import Figure

TRAFFIC: Final = (
    Figure(
        "average_turns_per_s",
        "turns/s",
        "users * turns_per_user / 86400 if open_conversations == 0"
        " else open_conversations / turn_gap_s / peak_factor",
        "Over the whole day.",
    ),
    Figure(
        "peak_turns_per_s",
        "turns/s",
        "average_turns_per_s * peak_factor if open_conversations == 0"
        " else open_conversations / turn_gap_s",
        "In the busiest hour. Everything is sized for it.",
    ),
    Figure("turns_per_day", "turns/day", "average_turns_per_s * 86400", "That are to be answered."),
    Figure(
        "turn_gap_s",
        "s",
        "think_s + answer_s",
        "From turn to turn of one conversation: the answer, and the time to read and type.",
    ),
    Figure(
        "answer_s",
        "s",
        "large.share * large.answer_s + small.share * small.answer_s",
        "How long an answer streams, on average.",
    ),
    Figure("streams", "streams", "peak_turns_per_s * answer_s", "Answers under way at the peak."),
    Figure("large.share", "share", "1 - small_share", "Of all turns."),
    Figure("small.share", "share", "small_share", "Of all turns."),
)

PROMPT: Final = (
    Figure(
        "prompt_tokens",
        "tokens",
        "system_tokens + history_tokens + new_tokens",
        "A whole prompt, on average.",
    ),
    Figure(
        "cached_share",
        "share",
        "hit_share * (prompt_tokens - new_tokens) / prompt_tokens",
        "Of a whole prompt: found in the prefix cache.",
    ),
    Figure("cached_tokens", "tokens", "prompt_tokens * cached_share", "Found, of one prompt."),
    Figure(
        "uncached_tokens",
        "tokens",
        "prompt_tokens * (1 - cached_share)",
        "To be read, of one prompt. Prefill is sized by these.",
    ),
    Figure("answer_tokens_per_s", "tokens/s", "peak_turns_per_s * answer_tokens", "Written."),
    Figure("prompt_tokens_per_s", "tokens/s", "peak_turns_per_s * prompt_tokens", "Sent."),
    Figure(
        "uncached_tokens_per_s",
        "tokens/s",
        "prompt_tokens_per_s * (1 - cached_share)",
        "To be read. Without a cache it would be all that is sent.",
    ),
)

HITS: Final = (
    Figure(
        "hits_simulated",
        "share",
        "prefix_hits(hit_replicas, cache_tokens, hit_conversations, turns_per_conversation,"
        " system_tokens, new_tokens, answer_tokens, stray_share, seed)",
        "Of all prompt tokens: found in the caches, by playing conversations against them.",
    ),
    Figure(
        "hits_lost",
        "share",
        "prefix_hits(hit_replicas, cache_tokens, hit_conversations, turns_per_conversation,"
        " system_tokens, new_tokens, answer_tokens, 0, seed) - hits_simulated",
        "What turns that stray from home cost, of all prompt tokens.",
    ),
    Figure(
        "hits_at_most",
        "share",
        "(turns_per_conversation * system_tokens + grown_tokens)"
        " / (turns_per_conversation * (system_tokens + new_tokens) + grown_tokens)",
        "With a cache without end and every turn at home: the new message is never known.",
    ),
    Figure(
        "hits_at_least",
        "share",
        "turns_per_conversation * system_tokens"
        " / (turns_per_conversation * (system_tokens + new_tokens) + grown_tokens)",
        "With nobody's history kept: the system prompt alone is known.",
    ),
    Figure(
        "grown_tokens",
        "tokens",
        "(new_tokens + answer_tokens) * turns_per_conversation * (turns_per_conversation - 1) / 2",
        "What all earlier turns add to all prompts of one conversation.",
    ),
    Figure(
        "idle_history_tokens",
        "tokens",
        "system_tokens + (new_tokens + answer_tokens) * (1 + (turns_per_conversation - 2) / 2)",
        "What a conversation holds between two turns, on average.",
    ),
    Figure(
        "cache_wanted_tokens",
        "tokens",
        "hit_conversations / hit_replicas * idle_history_tokens",
        "Of each replica's cache, to keep all its conversations.",
    ),
    Figure(
        "cache_speed_up",
        "×",
        "cold_answer_s / warm_answer_s",
        "What a cache was worth where somebody measured it.",
    ),
)

FLEET: Final = (
    Figure(
        "turn_accelerator_s",
        "accelerator s",
        "large.share * large.accelerator_s + small.share * small.accelerator_s",
        "One turn, on average.",
    ),
    Figure(
        "large_for_small",
        "×",
        "large.accelerator_s / small.accelerator_s",
        "What a turn of the large model costs, in turns of the small one.",
    ),
    Figure("replicas", "replicas", "large.replicas + small.replicas", "Of both pools."),
    Figure(
        "accelerators",
        "accelerators",
        "large.accelerators + small.accelerators",
        "To rent or buy.",
    ),
    Figure(
        "busy_accelerators",
        "accelerators",
        "large.busy_accelerators + small.busy_accelerators",
        "Busy at the peak.",
    ),
    Figure(
        "busy_prefill_accelerators",
        "accelerators",
        "large.busy_prefill_accelerators + small.busy_prefill_accelerators",
        "Busy reading prompts.",
    ),
    Figure(
        "busy_cold_accelerators",
        "accelerators",
        "large.busy_cold_accelerators + small.busy_cold_accelerators",
        "Busy reading prompts after all caches were lost: as when the system prompt changes.",
    ),
    Figure("servers", "servers", "accelerators / accelerators_per_server", "That hold them."),
    Figure(
        "waiting_conversations",
        "conversations",
        "peak_turns_per_s * turn_gap_s - streams",
        "Between two turns: their histories should still be known when they come back.",
    ),
    Figure(
        "idle_bytes",
        "B",
        "large.idle_bytes + small.idle_bytes",
        "KV cache of all conversations between two turns.",
    ),
    Figure(
        "idle_bytes_per_server",
        "B",
        "idle_bytes / servers",
        "Ordinary memory of a server that keeps them all, with nothing on the accelerators.",
    ),
    Figure(
        "host_bytes_per_server",
        "B",
        "(large.host_tokens * large.kv_bytes_per_token"
        " + small.host_tokens * small.kv_bytes_per_token) / servers",
        "The same for what the accelerators' caches do not hold: the least.",
    ),
)

OVERLOAD: Final = (
    Figure(
        "paid_accelerators",
        "accelerators",
        "busy_accelerators * (1 - free_share)",
        "Busy with turns that the ladder never touches.",
    ),
    Figure(
        "paid_alone_at",
        "×",
        "accelerators / paid_accelerators if paid_accelerators > 0 else inf",
        "So many times the peak before paid turns alone fill the fleet.",
    ),
    Figure(
        "ladder_to_small_removes",
        "share",
        "free_share * large.share * (large.accelerator_s - small.accelerator_s)"
        " / turn_accelerator_s",
        "Of the work, when the ladder sends all free turns to the small model.",
    ),
)

DOORS: Final = (
    Figure("writes_per_s", "writes/s", "peak_turns_per_s * writes_per_turn", "To the store."),
    Figure("stored_bytes_per_day", "B/day", "turns_per_day * stored_bytes", "New every day."),
    Figure("stored_bytes_per_year", "B/year", "stored_bytes_per_day * 365", "If all is kept."),
    Figure(
        "stored_bytes_kept",
        "B",
        "stored_bytes_per_day * retention_days * copies",
        "As long as it is kept, with its copies.",
    ),
    Figure("gateway_turns_per_s", "turns/s", "gateway_streams / answer_s", "Of one gateway."),
    Figure(
        "gateways",
        "gateways",
        "ceil(peak_turns_per_s / gateway_turns_per_s) + 1",
        "One may fail.",
    ),
    Figure(
        "regions",
        "regions",
        "max(1, ceil(accelerators / region_quota))",
        "As many as it takes to get the accelerators.",
    ),
    Figure(
        "cells",
        "cells",
        "max(regions, ceil(peak_turns_per_s / cell_turns_per_s))",
        "Each with gateways, workers, stores and replicas of its own.",
    ),
)

MONEY: Final = (
    Figure(
        "accelerator_cost_per_day", "$/day", "large.cost_per_day + small.cost_per_day", "All day."
    ),
    Figure(
        "scaled_share",
        "share",
        "min(1, 1 / peak_factor + load_s / 86400)",
        "Of the hours of a fleet that is always as large as at its peak, if it follows a day with"
        " one peak and an empty night, as early as a replica takes to load.",
    ),
    Figure(
        "scaled_cost_per_day",
        "$/day",
        "max(smallest_fleet_cost_per_day, accelerator_cost_per_day * scaled_share)",
        "If the fleet is scaled with the day, and never below its smallest.",
    ),
    Figure("team_per_day", "$/day", "team_per_year / 365", "The people."),
    Figure("cost_per_day", "$/day", "accelerator_cost_per_day + team_per_day", "Both."),
    Figure("cost_per_turn", "$", "cost_per_day / turns_per_day", "One turn."),
    Figure("cost_per_1000", "$", "1000 * cost_per_turn", "A thousand turns."),
    Figure(
        "cost_per_million_tokens",
        "$",
        "1e6 * cost_per_turn / (prompt_tokens + answer_tokens)",
        "A million tokens, prompts and answers alike.",
    ),
    Figure(
        "cost_per_million_answer_tokens",
        "$",
        "1e6 * cost_per_turn / answer_tokens",
        "A million tokens of answers, prompts included in the price.",
    ),
    Figure(
        "api_cost_per_turn",
        "$",
        "(uncached_tokens * api_new + cached_tokens * api_cached + answer_tokens * api_answer)"
        " / 1e6",
        "One turn at a hosted model.",
    ),
    Figure("api_cost_per_1000", "$", "1000 * api_cost_per_turn", "A thousand turns."),
    Figure("api_cost_per_day", "$/day", "api_cost_per_turn * turns_per_day", "All turns of a day."),
    Figure(
        "share_of_api", "share", "cost_per_turn / api_cost_per_turn", "Own fleet over hosted model."
    ),
    Figure(
        "accelerator_cost_per_user",
        "$/day",
        "24 * (large.needed_accelerators * large.price_per_hour"
        " + small.needed_accelerators * small.price_per_hour) * turns_per_user / turns_per_day",
        "Of a fleet so large that whole replicas and spare ones are a small part of it.",
    ),
    Figure(
        "api_cost_per_user", "$/day", "turns_per_user * api_cost_per_turn", "At a hosted model."
    ),
    Figure(
        "crossover_by_team",
        "people/day",
        "team_per_day / (api_cost_per_user - accelerator_cost_per_user)"
        " if api_cost_per_user > accelerator_cost_per_user else inf",
        "From where on the fleet's lower cost pays for the team.",
    ),
    Figure(
        "smallest_fleet_cost_per_day",
        "$/day",
        "24 * (large.accelerators_per_replica * large.price_per_hour * (1 + spare_replicas)"
        " * (large.share > 0)"
        " + small.accelerators_per_replica * small.price_per_hour * (1 + spare_replicas)"
        " * (small.share > 0))",
        "One replica of each pool and the spare ones: less is no fleet.",
    ),
    Figure(
        "crossover_by_smallest_fleet",
        "people/day",
        "(team_per_day + smallest_fleet_cost_per_day) / api_cost_per_user",
        "From where on the smallest fleet and its team cost less than a hosted model.",
    ),
    Figure(
        "crossover_users",
        "people/day",
        "max(crossover_by_team, crossover_by_smallest_fleet)",
        "Below so many people a hosted model costs less.",
    ),
)

LIMITS: Final = (
    Figure(
        "turn_units",
        "units",
        "new_weight * uncached_tokens + cached_weight * cached_tokens"
        " + answer_weight * answer_tokens",
        "What a typical turn costs a user.",
    ),
    Figure(
        "turns_per_refill",
        "turns",
        "budget_units / turn_units",
        "That a budget allows for ever, in the time in which it comes back.",
    ),
    Figure("refill_per_s", "units/s", "budget_units / refill_s", "That come back."),
    Figure(
        "worst_units",
        "units",
        "new_weight * prompt_tokens + answer_weight * max_answer_tokens",
        "Reserved for a turn until its real cost is known.",
    ),
    Figure(
        "burst_allowed",
        "turns",
        "min(burst_turns, floor(budget_units / worst_units))",
        "Of turns sent at once, with a full budget.",
    ),
    Figure("burst_refused", "turns", "burst_turns - burst_allowed", "The others."),
    Figure(
        "burst_retry_s",
        "s",
        "max(0, worst_units - (budget_units - burst_allowed * worst_units)) / refill_per_s",
        "That the first of the refused is told to wait.",
    ),
    Figure(
        "huge_for_typical",
        "×",
        "huge_prompt_tokens / uncached_tokens",
        "What a pasted document costs to read, in typical prompts.",
    ),
    Figure(
        "reserved_tokens", "tokens", "prompt_tokens + max_answer_tokens", "Plain, for one turn."
    ),
    Figure("settled_tokens", "tokens", "prompt_tokens + answer_tokens", "Plain, as it was used."),
    Figure("refunded_tokens", "tokens", "reserved_tokens - settled_tokens", "Given back."),
    Figure("turns_per_day_allowed", "turns", "day_tokens / settled_tokens", "By plain tokens."),
    Figure(
        "spike_waiting",
        "turns",
        "max(0, spike_turns_per_s - large.full_turns_per_s) * spike_s",
        "In the line at the end of a spike.",
    ),
    Figure(
        "spike_wait_s",
        "s",
        "spike_waiting / large.full_turns_per_s",
        "That the last of them waits.",
    ),
)

FLEET_FIGURES: Final = {
    one.name: one
    for part in (TRAFFIC, PROMPT, HITS, FLEET, OVERLOAD, DOORS, MONEY, LIMITS)
    for one in part
}
