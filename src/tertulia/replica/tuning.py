"""Finds how many tokens a step may hold, so that no stream waits much beyond the target.

It must leave the model's cache empty.
"""

import time
from collections.abc import Callable

from tertulia.replica.model import Entry, Model

SMALLEST, LARGEST = 16, 256  # below it prefill starves, above it nothing is gained on a CPU
PROBE = 16  # few, because whoever starts the service waits for it; `retuned` does the rest
REPEATS = 2  # the fastest counts, after one to warm up: other work only ever adds time
TOO_LONG, TOO_SHORT = 1.2, 0.8  # of the target; between them a budget stays, or it would swing
TOKEN = 100  # any ordinary token; what it says does not change how long it takes


def measure_step_tokens(
    model: Model, target_s: float, clock: Callable[[], float] = time.perf_counter
) -> int:
    """About the largest batch that stays within `target_s`, between 16 and 256: where to begin."""
    most = min(LARGEST, model.limits.n_batch)
    n_probe = min(PROBE, most)
    entries = [Entry(TOKEN, place, 0, place == n_probe - 1) for place in range(n_probe)]
    times = []
    for _ in range(1 + REPEATS):
        began_s = clock()
        model.decode(entries)
        times.append(clock() - began_s)
        model.cut(0, 0)
    n_tokens = int(n_probe * target_s / max(min(times[1:]), 1e-9))
    return max(min(SMALLEST, most), min(most, n_tokens))


def retuned(step_tokens: int, n_tokens: int, took_s: float, target_s: float) -> int:
    """The budget after a step of `n_tokens` took so long: the machine is not ours alone.

    Only nearly full steps say something about the budget; it moves by a tenth, so that one odd step
    does not matter.
    """
    if took_s > target_s * TOO_LONG and n_tokens > SMALLEST:
        return max(SMALLEST, step_tokens - max(1, step_tokens // 10))
    if took_s < target_s * TOO_SHORT and n_tokens * 10 >= step_tokens * 9:
        return min(LARGEST, step_tokens + max(1, step_tokens // 10))
    return step_tokens
