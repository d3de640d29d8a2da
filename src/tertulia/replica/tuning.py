"""Measures what a step costs, so that no stream waits much beyond the target.

It must leave the model's cache empty.
"""

import time
from collections.abc import Callable

from tertulia.core.costs import StepCost
from tertulia.replica.model import Entry, Model

FEW, MANY = 1, 32  # tokens of the two batches that tell what a step and what a token costs
FAR = 256  # tokens before a third one, which tells what it costs to look back
REPEATS = 2  # the fastest counts, after one to warm up: other work only ever adds time
TOKEN = 100  # any ordinary token; what it says does not change how long it takes
# Of what it takes to attend to a token, for one that is only skipped: it is some other sequence's.
# docs/explanation/measurements.md has both; the difference is too small for a second's measuring.
SKIPPED = 0.05
LEAST_S = 1e-9  # of any coefficient: on an odd measurement a batch must not become free


def measure_step_cost(
    model: Model, block_tokens: int, clock: Callable[[], float] = time.perf_counter
) -> tuple[StepCost, int]:
    """The cost of a step on this machine now, and the bytes of one block that is saved."""

    def fastest(first: int, n_tokens: int) -> float:
        entries = [Entry(TOKEN, first + n, 0, n == n_tokens - 1) for n in range(n_tokens)]
        times = []
        for _ in range(1 + REPEATS):
            began_s = clock()
            model.decode(entries)
            times.append(clock() - began_s)
            model.cut(0, first, first + n_tokens)
        return min(times[1:])

    few_s, many_s = fastest(0, FEW), fastest(0, MANY)
    token_s = max(LEAST_S, (many_s - few_s) / (MANY - FEW))
    for first in range(0, FAR, MANY):
        entries = [Entry(TOKEN, first + n, 0, wants_logits=False) for n in range(MANY)]
        model.decode(entries)
    pair_s = max(0.0, fastest(FAR, MANY) - many_s) / (MANY * FAR)  # attended and scanned
    block_bytes = len(model.save(0, 0, block_tokens))
    model.cut(0, 0, FAR)
    cost = StepCost(
        fixed_s=max(LEAST_S, few_s - FEW * token_s),
        token_s=token_s,
        attended_s=pair_s / (1 + SKIPPED),
        scanned_s=pair_s / (1 + SKIPPED) * SKIPPED,
    )
    return cost, block_bytes
