"""What the fast engine's loop runs on: lists, or arrays and a compiler (`tertulia[simulate]`)."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import fields
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from tertulia.simulator import heaps, loop
from tertulia.simulator.loop import Beat, Rules, State


def has_numba() -> bool:
    """Whether the loop can be compiled here."""
    return find_spec("numba") is not None


class Machine:
    """What the loop runs on: lists, or arrays and a compiler."""

    def __init__(self, is_compiled: bool) -> None:
        self.is_compiled = is_compiled
        if is_compiled:
            self.play, self.heap = compiled(), heaps.array_heap
        else:
            self.play = loop.build(lambda f: f, heaps.plain_push, heaps.plain_pop)
            self.heap = heaps.plain_heap

    def integers(self, n: int) -> Any:
        """So many zeros."""
        return np.zeros(n, np.int64) if self.is_compiled else [0] * n

    def floats(self, n: int) -> Any:
        """So many zeros."""
        return np.zeros(n, np.float64) if self.is_compiled else [0.0] * n

    def given(self, values: Any) -> Any:
        """An array as the loop takes it."""
        return values if self.is_compiled else values.tolist()

    def taken(self, values: Any) -> list[Any]:
        """What the loop has, as a list."""
        return values.tolist() if self.is_compiled else list(values)

    def record(self, one: Rules | Beat | State) -> Any:
        """A record as the loop takes it: the compiler knows named tuples alone, and Python reads
        attributes three times as fast as those."""
        if not self.is_compiled:
            return one
        kind = _tuple_like(type(one))
        return kind(*(getattr(one, name) for name in kind._fields))


@cache
def _tuple_like(kind: type) -> Any:
    return namedtuple(kind.__name__, [one.name for one in fields(kind)])  # type: ignore[misc]  # the dataclass says it


@cache
def compiled() -> Any:
    """The loop in machine code; made once a process, which takes some seconds."""
    import numba

    jit = numba.njit(nogil=True)
    return loop.build(jit, *heaps.array_functions(jit))
