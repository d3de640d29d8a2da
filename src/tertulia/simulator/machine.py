"""What the fast engine's loop runs on: lists, or arrays and a compiler (`tertulia[simulate]`)."""

from __future__ import annotations

from array import array
from collections import namedtuple
from dataclasses import fields
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from tertulia.simulator import heaps, loop
from tertulia.simulator.loop import Beat, Rules, State

_TUPLES: Final[dict[type, Any]] = {
    kind: namedtuple(kind.__name__, [one.name for one in fields(kind)])
    for kind in (Rules, Beat, State)
}
# As many tags are near anyway.
_NEAR: Final = 50_000
# Above this a list costs Python's collector more than it saves its readers.
_LONG: Final = 50_000


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
        if self.is_compiled:
            return np.zeros(n, np.float64)
        # Python's collector looks through a list each time, and would take a third of the loop's
        # time with a million of them; a short list is the quickest to read.
        return array("d", bytes(8 * n)) if n > _LONG else [0.0] * n

    def given(self, values: Any) -> Any:
        """An array as the loop takes it."""
        return values if self.is_compiled else values.tolist()

    def taken(self, values: Any) -> list[Any]:
        """What the loop has, as a list."""
        return values.tolist() if self.is_compiled else list(values)

    def fetch(self, tags: tuple[Any, Any], owners: Any, lanes: Any) -> None:
        """Brings the tags of a beat's owners near the processor, all at once: of a million owners
        hardly one is there, and the loop would wait for each in turn, a third of its time."""
        if self.is_compiled and len(tags[0]) > _NEAR:
            for lane, own in enumerate(tags):
                own.take(owners[lanes == lane])

    def record(self, one: Rules | Beat | State) -> Any:
        """A record as the loop takes it: the compiler knows named tuples alone, and Python reads
        attributes three times as fast as those."""
        if not self.is_compiled:
            return one
        kind = _TUPLES[type(one)]
        return kind(*(getattr(one, name) for name in kind._fields))


@cache
def compiled() -> Any:
    """The loop in machine code; made once a process, which takes some seconds."""
    import numba

    # Without `_nrt` it is not counted who refers to an array, which would take more than all else:
    # the functions take arrays out of records for each message. They make none, so none can leak.
    jit = numba.njit(nogil=True, error_model="numpy", _nrt=False)  # type: ignore[call-overload]  # no type names it
    return loop.build(jit, jit(heaps.array_push), jit(heaps.array_pop))
