"""Keeps the cache of finished sequences, so that a conversation's next turn computes only the new.

A prefix is found only under the salt it was made with: nobody can probe for another owner's text.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from tertulia.replica.cells import Cells
from tertulia.replica.model import Model, NoRoom

WORTH_MOVING = 32  # tokens; a shorter prefix is computed again about as quickly as it is moved


@dataclass(frozen=True)
class ParkingBounds:
    """How much may be kept."""

    n_cells: int  # in the model's cache; the arithmetic of every step runs over these as well
    n_host_bytes: int  # in ordinary memory, where they cost nothing until they are needed


@dataclass(frozen=True)
class _Parked:
    salt: str | None
    tokens: list[int]
    state: bytes = b""  # when it has been moved to ordinary memory


class Parking:
    """Hands out the model's sequence numbers and remembers what finished ones still hold.

    Invariant: each number is free, handed out, or parked with exactly the tokens in its cache.
    """

    def __init__(self, model: Model, cells: Cells, bounds: ParkingBounds) -> None:
        self._model = model
        self._cells = cells
        self._bounds = bounds
        self._free = list(range(model.limits.n_sequences))
        # Both least recently used first:
        self._parked: dict[int, _Parked] = {}  # by sequence number
        self._moved: dict[int, _Parked] = {}  # in ordinary memory, by a number of its own
        self._moved_numbers = count()
        self._n_host_bytes = 0

    @property
    def n_host_bytes(self) -> int:
        return self._n_host_bytes

    def take(self, salt: str | None, tokens: list[int]) -> tuple[int, int]:
        """A sequence for these tokens, and how many of them it already holds.

        The last token is never among them: somebody has to compute what follows it.
        """
        source, n_common = _longest(self._parked.items(), salt, tokens)
        moved, n_moved = _longest(self._moved.items(), salt, tokens)
        if moved is not None and n_moved > n_common + WORTH_MOVING:
            number = self._bring_back(moved, n_moved)
            if number is not None:
                return number, n_moved
            source, n_common = _longest(self._parked.items(), salt, tokens)  # some have moved
        if source is None:
            return self._unused(), 0
        is_only = not self._free and len(self._parked) == 1
        if n_common == len(self._parked[source].tokens) or is_only:
            del self._parked[source]
            self._cells.wake(source)
            self._keep(source, n_common)
            return source, n_common
        self._parked[source] = self._parked.pop(source)  # used just now: the last to be dropped
        number = self._unused()
        self._model.copy(source, number, n_common)
        self._cells.share(source, number, n_common)
        return number, n_common

    def park(self, number: int, salt: str | None, tokens: list[int]) -> None:
        """Takes a sequence back with what its cache holds."""
        if not tokens:
            self._release(number)
            return
        self._cells.park(number)
        self._parked[number] = _Parked(salt, tokens)
        while self._cells.n_parked > self._bounds.n_cells:
            self._move_oldest()

    def make_room(self, n_tokens: int) -> None:
        """Moves away what was used longest ago until so many cells are free."""
        while self._cells.n_free < n_tokens:
            self._move_oldest()

    def drop_all(self) -> bool:
        """Drops everything from the cache; false when nothing was there."""
        had_some = bool(self._parked)
        for number in list(self._parked):
            del self._parked[number]
            self._release(number)
        return had_some

    def _unused(self) -> int:
        if not self._free:
            self._move_oldest()
        return self._free.pop()

    def _move_oldest(self) -> None:
        assert self._parked, "there is nothing left to move"
        number = next(iter(self._parked))
        parked = self._parked.pop(number)
        if len(parked.tokens) > WORTH_MOVING and self._bounds.n_host_bytes:
            self._remember(_Parked(parked.salt, parked.tokens, self._model.save(number)))
        self._release(number)

    def _remember(self, moved: _Parked) -> None:
        self._moved[next(self._moved_numbers)] = moved
        self._n_host_bytes += len(moved.state)
        while self._n_host_bytes > self._bounds.n_host_bytes:
            self._forget(next(iter(self._moved)))

    def _forget(self, key: int) -> _Parked:
        moved = self._moved.pop(key)
        self._n_host_bytes -= len(moved.state)
        return moved

    def _bring_back(self, key: int, n_common: int) -> int | None:
        """A sequence that holds the first `n_common` tokens again, or none if there is no room."""
        n_whole = len(self._moved[key].tokens)
        if n_whole > self._cells.n_available:
            return None
        moved = self._forget(key)  # first: making room may push others out of memory, never this
        self.make_room(n_whole)
        number = self._unused()
        try:
            self._model.restore(number, moved.state)
        except NoRoom:
            self._release(number)
            return None
        self._cells.extend(number, n_whole)
        self._keep(number, n_common)
        if n_common < n_whole:
            self._remember(moved)  # another turn branches off; this one's rest stays known
        return number

    def _release(self, number: int) -> None:
        self._model.cut(number, 0)
        self._cells.clear(number)
        self._free.append(number)

    def _keep(self, number: int, n_tokens: int) -> None:
        self._model.cut(number, n_tokens)
        self._cells.cut(number, n_tokens)


def _longest(
    parked: Iterable[tuple[int, _Parked]], salt: str | None, tokens: list[int]
) -> tuple[int | None, int]:
    best, n_best = None, 0
    for key, one in parked:
        if one.salt == salt:
            n_common = _common(one.tokens, tokens[:-1])
            if n_common > n_best:
                best, n_best = key, n_common
    return best, n_best


def _common(one: list[int], other: list[int]) -> int:
    """The length of the common prefix; compares slices, which is quick for thousands of tokens."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
