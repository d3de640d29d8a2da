"""Keeps the cache of finished sequences, so that a conversation's next turn computes only the new.

A prefix is found only under the salt it was made with: nobody can probe for another owner's text.
"""

from dataclasses import dataclass

from tertulia.replica.cells import Cells
from tertulia.replica.model import Model


@dataclass
class _Parked:
    salt: str | None
    tokens: list[int]


class Parking:
    """Hands out the model's sequence numbers and remembers what finished ones still hold.

    Invariant: each number is free, handed out, or parked with exactly the tokens in its cache.
    """

    def __init__(self, model: Model, cells: Cells, n_parked_cells: int) -> None:
        self._model = model
        self._cells = cells
        self._n_parked_cells = n_parked_cells
        self._free = list(range(model.limits.n_sequences))
        self._parked: dict[int, _Parked] = {}  # least recently used first

    def take(self, salt: str | None, tokens: list[int]) -> tuple[int, int]:
        """A sequence for these tokens, and how many of them it already holds.

        The last token is never among them: somebody has to compute what follows it.
        """
        source, n_common = self._longest(salt, tokens)
        if source is not None and (
            n_common == len(self._parked[source].tokens)
            or (not self._free and len(self._parked) == 1)
        ):
            del self._parked[source]
            self._cells.wake(source)
            self._keep(source, n_common)
            return source, n_common
        if source is not None:
            self._parked[source] = self._parked.pop(source)  # used just now: the last to be dropped
        if not self._free:
            self._drop_oldest()
        number = self._free.pop()
        if source is not None:
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
        while self._cells.n_parked > self._n_parked_cells:
            self._drop_oldest()

    def make_room(self, n_tokens: int) -> None:
        """Drops what was used longest ago until so many cells are free."""
        while self._cells.n_free < n_tokens:
            self._drop_oldest()

    def drop_all(self) -> bool:
        """Drops everything that is parked; false when nothing was."""
        had_some = bool(self._parked)
        while self._parked:
            self._drop_oldest()
        return had_some

    def _longest(self, salt: str | None, tokens: list[int]) -> tuple[int | None, int]:
        best, n_best = None, 0
        for number, parked in self._parked.items():
            if parked.salt != salt:
                continue
            n_common = _common(parked.tokens, tokens[:-1])
            if n_common > n_best:
                best, n_best = number, n_common
        return best, n_best

    def _drop_oldest(self) -> None:
        assert self._parked, "there is nothing left to drop"
        number = next(iter(self._parked))
        del self._parked[number]
        self._release(number)

    def _release(self, number: int) -> None:
        self._model.cut(number, 0)
        self._cells.clear(number)
        self._free.append(number)

    def _keep(self, number: int, n_tokens: int) -> None:
        self._model.cut(number, n_tokens)
        self._cells.cut(number, n_tokens)


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
