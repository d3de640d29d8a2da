"""What follows for one pool of replicas: memory, steps, prefill, and how many replicas it takes.

Formulas alone, in the order in which one would reckon on paper.
"""

from __future__ import annotations

from typing import Final

from tertulia.planner.sheet import Figure

MEMORY: Final = (
    Figure(
        "kv_bytes_per_token",
        "B",
        "2 * layers * kv_heads * head_dim * kv_bytes_each",
        "Keys and values that every layer keeps of one token.",
    ),
    Figure("weights_bytes", "B", "params * weight_bytes_each", "The model's weights."),
    Figure(
        "weights_bytes_each",
        "B",
        "weights_bytes / accelerators_per_replica",
        "The weights' part on each accelerator of a replica.",
    ),
    Figure(
        "kv_room_bytes_each",
        "B",
        "memory_bytes - weights_bytes_each - reserved_bytes",
        "Left for the KV cache on each accelerator.",
    ),
    Figure(
        "kv_room_bytes",
        "B",
        "accelerators_per_replica * kv_room_bytes_each",
        "Left for the KV cache in a replica.",
    ),
    Figure(
        "kv_tokens", "tokens", "kv_room_bytes / kv_bytes_per_token", "That a replica's cache holds."
    ),
    Figure(
        "context_bytes",
        "B",
        "context_limit * kv_bytes_per_token",
        "The KV cache of one conversation as long as the longest on offer.",
    ),
    Figure(
        "context_share_of_room",
        "share",
        "context_bytes / kv_room_bytes",
        "What one such conversation takes of a replica's cache.",
    ),
    Figure(
        "shared_prefix_bytes",
        "B",
        "system_tokens * kv_bytes_per_token",
        "The system prompt's KV cache, kept once for everybody.",
    ),
    Figure(
        "private_prefix_bytes",
        "B",
        "batch * shared_prefix_bytes",
        "The same if every sequence had a copy of its own.",
    ),
    Figure(
        "private_prefix_share",
        "share",
        "private_prefix_bytes / kv_room_bytes",
        "What those copies would take of the cache.",
    ),
)

STEP: Final = (
    Figure(
        "context_tokens",
        "tokens",
        "prompt_tokens + answer_tokens / 2",
        "What a sequence holds on average while it is answered.",
    ),
    Figure(
        "sequence_tokens", "tokens", "prompt_tokens + answer_tokens", "What it holds at its end."
    ),
    Figure(
        "batch_by_memory",
        "sequences",
        "floor(kv_tokens / sequence_tokens)",
        "That fit into the cache, in pages as they grow.",
    ),
    Figure(
        "batch_reserved",
        "sequences",
        "floor(kv_tokens / reserved_sequence_tokens)",
        "That would fit if each had its longest set aside.",
    ),
    Figure(
        "paging_gain",
        "share",
        "batch_by_memory / batch_reserved - 1",
        "How many more sequences pages make room for.",
    ),
    Figure(
        "read_s_per_sequence",
        "s",
        "context_tokens * kv_bytes_per_token / (accelerators_per_replica * bandwidth * efficiency)",
        "To read one sequence's KV cache, in each step.",
    ),
    Figure(
        "read_s_weights",
        "s",
        "weights_bytes / (accelerators_per_replica * bandwidth * efficiency)",
        "To read the weights, in each step, however many sequences there are.",
    ),
    Figure(
        "batch_by_gap",
        "sequences",
        "max(0, floor((gap_target_s - a_s - read_s_weights - chunk_s)"
        " / (read_s_per_sequence + b_s)))",
        "With which a step that also reads a chunk of a prompt keeps the target between tokens.",
    ),
    Figure(
        "batch",
        "sequences",
        "min(batch_by_memory, batch_by_gap, slots)",
        "That a replica answers at once when it is full: the smallest of three bounds.",
    ),
    Figure(
        "step_bytes",
        "B",
        "weights_bytes + batch * context_tokens * kv_bytes_per_token",
        "Read in one step of a full batch: the weights once, and every sequence's KV cache.",
    ),
    Figure(
        "step_bytes_each",
        "B",
        "step_bytes / accelerators_per_replica",
        "The same on one accelerator.",
    ),
    Figure(
        "step_s",
        "s",
        "a_s + step_bytes / (accelerators_per_replica * bandwidth * efficiency) + b_s * batch",
        "One step of decoding with a full batch: one token for everybody in it.",
    ),
    Figure("stream_tokens_per_s", "tokens/s", "1 / step_s", "As fast as one stream then comes."),
    Figure(
        "decode_tokens_per_s",
        "tokens/s",
        "batch * stream_tokens_per_s",
        "Of all streams of a replica together.",
    ),
    Figure(
        "single_tokens_per_s",
        "tokens/s",
        "1 / (a_s + read_s_weights + read_s_per_sequence + b_s)",
        "If a replica answered one at a time.",
    ),
    Figure(
        "batch_gain",
        "×",
        "decode_tokens_per_s / single_tokens_per_s",
        "What answering many at once is worth.",
    ),
    Figure("answer_s", "s", "answer_tokens / stream_tokens_per_s", "How long an answer streams."),
)

PREFILL: Final = (
    Figure(
        "prefill_flops",
        "FLOP/s",
        "flops * flops_share",
        "What one accelerator really does while prompts are read.",
    ),
    Figure(
        "p1_s",
        "s",
        "2 * params / (accelerators_per_replica * prefill_flops)",
        "To read one token of a prompt: two operations for each parameter.",
    ),
    Figure(
        "prefill_token_s",
        "s",
        "p1_s + p2_s * (2 * cached_tokens + uncached_tokens)",
        "The same with attention to all that comes before it.",
    ),
    Figure(
        "prefill_tokens_per_s", "tokens/s", "1 / prefill_token_s", "Of prompts, by one replica."
    ),
    Figure(
        "prefill_s",
        "s",
        "uncached_tokens * prefill_token_s",
        "To read what is new of a prompt, between steps of decoding.",
    ),
    Figure(
        "cold_prefill_s",
        "s",
        "p0_s + prompt_tokens * (p1_s + p2_s * prompt_tokens)",
        "To read a whole prompt in a pass of its own.",
    ),
    Figure(
        "chunk_tokens",
        "tokens",
        "max(16, min(256, floor(gap_target_s / 4 / p1_s)))",
        "Of a prompt read in one step beside decoding: at most a quarter of the target's time.",
    ),
    Figure("chunk_s", "s", "chunk_tokens * p1_s", "That a chunk of a prompt adds to a step."),
    Figure(
        "gap_with_chunk_s",
        "s",
        "step_s + chunk_s",
        "Between two tokens while somebody's prompt is read.",
    ),
    Figure(
        "largest_chunk_tokens",
        "tokens",
        "max(0, floor((gap_target_s - step_s) / p1_s))",
        "The most of a prompt that a step may read within the target between tokens.",
    ),
    Figure(
        "first_token_s",
        "s",
        "hops_s + prefill_s",
        "To the first token, if nobody waits in front.",
    ),
    Figure(
        "move_s",
        "s",
        "uncached_tokens * kv_bytes_per_token / link_bytes_per_s",
        "To move what was read to another replica (prefill apart from decoding).",
    ),
)

WORK: Final = (
    Figure("turns_per_s", "turns/s", "share * peak_turns_per_s", "At the peak."),
    Figure(
        "decode_accelerator_s",
        "accelerator s",
        "accelerators_per_replica * answer_tokens / decode_tokens_per_s",
        "To write one answer.",
    ),
    Figure(
        "prefill_accelerator_s",
        "accelerator s",
        "accelerators_per_replica * uncached_tokens * prefill_token_s",
        "To read what is new of one prompt.",
    ),
    Figure(
        "cold_accelerator_s",
        "accelerator s",
        "accelerators_per_replica * prompt_tokens * (p1_s + p2_s * prompt_tokens)",
        "To read a whole prompt, as when all caches are lost.",
    ),
    Figure(
        "accelerator_s",
        "accelerator s",
        "decode_accelerator_s + prefill_accelerator_s",
        "One turn.",
    ),
    Figure(
        "busy_decode",
        "replicas",
        "turns_per_s * answer_tokens / decode_tokens_per_s",
        "Busy writing answers.",
    ),
    Figure(
        "busy_prefill",
        "replicas",
        "turns_per_s * uncached_tokens / prefill_tokens_per_s",
        "Busy reading prompts.",
    ),
    Figure("busy", "replicas", "busy_decode + busy_prefill", "Busy at the peak."),
    Figure(
        "prefill_share",
        "share",
        "busy_prefill / busy if busy > 0 else 0",
        "Of the busy time: prompts. Computing bounds it; bandwidth bounds the rest.",
    ),
    Figure(
        "busy_prefill_accelerators",
        "accelerators",
        "turns_per_s * prefill_accelerator_s",
        "Busy reading prompts.",
    ),
    Figure(
        "busy_cold_accelerators",
        "accelerators",
        "turns_per_s * cold_accelerator_s",
        "Busy reading prompts after all caches were lost.",
    ),
    Figure("busy_accelerators", "accelerators", "turns_per_s * accelerator_s", "Busy at the peak."),
    Figure(
        "needed_accelerators",
        "accelerators",
        "busy_accelerators * (1 + spare_share) / utilisation",
        "With what must not be busy, in parts of a replica.",
    ),
    Figure(
        "in_flight",
        "sequences",
        "turns_per_s * answer_tokens / stream_tokens_per_s",
        "Answered at once, by Little's law.",
    ),
)

REPLICAS: Final = (
    Figure(
        "replicas_by_time",
        "replicas",
        "ceil(busy * (1 + spare_share) / utilisation)",
        "For the work, none busier than they may be.",
    ),
    Figure(
        "replicas_by_slots",
        "replicas",
        "ceil(in_flight * (1 + spare_share) / slots)",
        "So that everybody who is answered has a slot.",
    ),
    Figure(
        "replicas_by_memory",
        "replicas",
        "ceil(in_flight * (1 + spare_share) * context_tokens / kv_tokens)",
        "So that the running answers fit into the caches.",
    ),
    Figure(
        "replicas",
        "replicas",
        "max(replicas_by_time, replicas_by_slots, replicas_by_memory, 1) + spare_replicas"
        " if share > 0 else 0",
        "In all: the largest of the three, and the spare ones.",
    ),
    Figure("accelerators", "accelerators", "accelerators_per_replica * replicas", "In all."),
    Figure(
        "full_turns_per_s",
        "turns/s",
        "replicas / (answer_tokens / decode_tokens_per_s + uncached_tokens * prefill_token_s)",
        "That the pool answers when every replica is busy all the time.",
    ),
    Figure(
        "cold_turns_per_s",
        "turns/s",
        "accelerators_per_replica / (decode_accelerator_s + cold_accelerator_s)",
        "Of one replica without a prefix cache.",
    ),
    Figure(
        "one_replica_load",
        "share",
        "peak_turns_per_s / cold_turns_per_s",
        "If one replica without a prefix cache had to answer everybody.",
    ),
    Figure(
        "quota_turns_per_s",
        "turns/s",
        "region_quota / accelerator_s",
        "If all that one region can get were this pool.",
    ),
    Figure("cost_per_day", "$/day", "accelerators * price_per_hour * 24", "All day long."),
)

IDLE: Final = (
    Figure("waiting", "conversations", "share * waiting_conversations", "Between two turns."),
    Figure("kept_tokens", "tokens", "sequence_tokens", "That each of them would find again."),
    Figure("kept_bytes", "B", "kept_tokens * kv_bytes_per_token", "The same in memory."),
    Figure("idle_tokens", "tokens", "waiting * kept_tokens", "Of all that wait."),
    Figure(
        "idle_bytes",
        "B",
        "idle_tokens * kv_bytes_per_token",
        "Memory for all conversations between two turns.",
    ),
    Figure(
        "free_tokens",
        "tokens",
        "replicas * kv_tokens - in_flight * context_tokens",
        "That the accelerators' caches hold beside the running answers.",
    ),
    Figure(
        "host_tokens",
        "tokens",
        "max(0, idle_tokens - free_tokens)",
        "That have to wait in ordinary memory, if the caches were filled perfectly.",
    ),
    Figure(
        "replicas_to_hold",
        "replicas",
        "ceil((idle_tokens + in_flight * context_tokens) / kv_tokens)",
        "That would hold every conversation without ordinary memory.",
    ),
)

POOL_FIGURES: Final = {
    one.name: one for part in (MEMORY, STEP, PREFILL, WORK, REPLICAS, IDLE) for one in part
}
