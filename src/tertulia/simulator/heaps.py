"""Heaps of pairs, a number and an id, twice: of plain Python, and of arrays for a compiler.

Both give the same pair, the lowest number and of equal ones the lowest id. `heap[0][0]` is the
lowest number of either; how many pairs there are is the caller's to know.
"""

from __future__ import annotations

import heapq
from typing import Any

# A compiled function has no types of Python's; both kinds of a heap go through the same code.
Heap = Any


def plain_heap(capacity: int) -> Heap:  # noqa: ARG001  # arrays need it
    """An empty heap for plain Python."""
    return []


def plain_push(heap: Heap, n: int, key: float, number: int) -> None:  # noqa: ARG001  # arrays need it
    """Adds a pair to a heap of n."""
    heapq.heappush(heap, (key, number))


def plain_pop(heap: Heap, n: int) -> tuple[float, int]:  # noqa: ARG001  # arrays need it
    """Takes the lowest out of a heap of n."""
    found: tuple[float, int] = heapq.heappop(heap)
    return found


def array_heap(capacity: int) -> Heap:
    """An empty heap in two arrays."""
    import numpy as np

    return (np.zeros(capacity + 1, np.float64), np.zeros(capacity + 1, np.int64))


def array_push(heap: Heap, n: int, key: float, number: int) -> None:
    """Adds a pair to a heap of n."""
    keys, numbers = heap
    at = n
    while at > 0:
        above = (at - 1) >> 1
        if keys[above] < key or (keys[above] == key and numbers[above] < number):
            break
        keys[at], numbers[at] = keys[above], numbers[above]
        at = above
    keys[at], numbers[at] = key, number


def array_pop(heap: Heap, n: int) -> tuple[float, int]:
    """Takes the lowest out of a heap of n."""
    keys, numbers = heap
    found = (keys[0], numbers[0])
    last = n - 1
    key, number = keys[last], numbers[last]
    at = 0
    while True:
        below = 2 * at + 1
        if below >= last:
            break
        beside = below + 1
        if beside < last and (
            keys[beside] < keys[below]
            or (keys[beside] == keys[below] and numbers[beside] < numbers[below])
        ):
            below = beside
        if key < keys[below] or (key == keys[below] and number < numbers[below]):
            break
        keys[at], numbers[at] = keys[below], numbers[below]
        at = below
    keys[at], numbers[at] = key, number
    return found
