"""Measures at start how many tokens a step may hold, so that no stream waits beyond the target.

It must leave the model's cache empty.
"""

import time
from collections.abc import Callable

from tertulia.replica.model import Entry, Model

SMALLEST, LARGEST = 16, 256  # below it prefill starves, above it nothing is gained on a CPU
PROBES = (16, 64)  # two points give a step's fixed cost and its cost per token
REPEATS = 3  # the fastest counts: other work on the machine only ever adds time
TOO_LONG, TOO_SHORT = 1.2, 0.8  # of the target; between them a budget stays, or it would swing
TOKEN = 100  # any ordinary token; what it says does not change how long it takes


def measure_step_tokens(
    model: Model, target_s: float, clock: Callable[[], float] = time.perf_counter
) -> int:
    """The largest batch that stays within `target_s`, between 16 and 256."""
    most = min(LARGEST, model.limits.n_batch)
    if most <= PROBES[1]:
        return most
    small_s, large_s = (_best(model, n_tokens, clock) for n_tokens in PROBES)
    per_token_s = max((large_s - small_s) / (PROBES[1] - PROBES[0]), 1e-9)
    n_tokens = PROBES[0] + (target_s - small_s) / per_token_s
    return max(SMALLEST, min(most, int(n_tokens)))


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


def _best(model: Model, n_tokens: int, clock: Callable[[], float]) -> float:
    entries = [Entry(TOKEN, place, 0, place == n_tokens - 1) for place in range(n_tokens)]
    times = []
    for _ in range(REPEATS + 1):  # the first one also warms up
        began_s = clock()
        model.decode(entries)
        times.append(clock() - began_s)
        model.cut(0, 0)
    return min(times[1:])
