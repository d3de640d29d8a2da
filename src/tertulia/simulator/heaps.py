"""Heaps of pairs, a number and an id, twice: of plain Python, and of arrays for a compiler.

Both give the same pair, the lowest number and of equal ones the lowest id. `heap[0][0]` is the
lowest number of either, if there is one: how many pairs there are is the caller's to know.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

# A compiled function has no types of Python's; both kinds of a heap go through the same code.
Heap = Any


def plain_heap(capacity: int) -> Heap:  # noqa: ARG001  # arrays need it
    """An empty heap for plain Python."""
    return []


# A call of our own around each would take a tenth of the whole loop's time.
plain_push, plain_pop = heapq.heappush, heapq.heappop


def array_heap(capacity: int) -> Heap:
    """An empty heap in two arrays, with its size in a third."""
    import numpy as np

    zeros = np.zeros(capacity + 1, np.float64)
    return (zeros, np.zeros(capacity + 1, np.int64), np.zeros(1, np.int64))


def array_functions(jit: Callable[[Any], Any]) -> tuple[Any, Any]:
    """`push` and `pop` of a heap in arrays, compiled."""
    rise = jit(_rise)

    def push(heap: Heap, pair: tuple[float, int]) -> None:
        """Adds a pair."""
        keys, numbers, size = heap
        size[0] += 1
        rise(keys, numbers, size[0] - 1, pair)

    def pop(heap: Heap) -> tuple[float, int]:
        """Takes the lowest out. The gap goes down along the lower ones to where none is below, and
        what stood last rises from there: being late it seldom rises far, and on the way down it
        need not be looked at."""
        keys, numbers, size = heap
        found = (keys[0], numbers[0])
        last = size[0] - 1
        size[0] = last
        at, below = 0, 1
        while below < last:
            beside = below + 1
            if beside < last and (
                keys[beside] < keys[below]
                or (keys[beside] == keys[below] and numbers[beside] < numbers[below])
            ):
                below = beside
            keys[at], numbers[at] = keys[below], numbers[below]
            at, below = below, 2 * below + 1
        rise(keys, numbers, at, (keys[last], numbers[last]))
        return found

    return jit(push), jit(pop)


def _rise(keys: Any, numbers: Any, at: int, pair: tuple[float, int]) -> None:
    """The pair stands at this place, or as far above it as it is lower than what stands there."""
    key, number = pair
    while at > 0:
        above = (at - 1) >> 1
        if keys[above] < key or (keys[above] == key and numbers[above] < number):
            break
        keys[at], numbers[at] = keys[above], numbers[above]
        at = above
    keys[at], numbers[at] = key, number
