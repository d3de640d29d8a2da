"""Heaps of pairs, a number and an id, twice: of plain Python, and of arrays for a compiler.

Both give the same pair, the lowest number and of equal ones the lowest id. `heap[0][0]` is the
lowest number of either, if there is one: how many pairs there are is the caller's to know.
"""

from __future__ import annotations

import heapq
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


def array_push(heap: Heap, pair: tuple[float, int]) -> None:
    """Adds a pair."""
    keys, numbers, size = heap
    key, number = pair
    at = size[0]
    size[0] += 1
    while at > 0:
        above = (at - 1) >> 1
        if keys[above] < key or (keys[above] == key and numbers[above] < number):
            break
        keys[at], numbers[at] = keys[above], numbers[above]
        at = above
    keys[at], numbers[at] = key, number


def array_pop(heap: Heap) -> tuple[float, int]:
    """Takes the lowest out."""
    keys, numbers, size = heap
    found = (keys[0], numbers[0])
    last = size[0] - 1
    size[0] = last
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
