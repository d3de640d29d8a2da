"""Keeps blocks alive in a cache that knows only numbered sequences, as llama.cpp's does.

It must never decide which blocks those are; it does the moves it is given, in their order.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from tertulia.core.prefix import Move
from tertulia.replica.model import Model
from tertulia.replica.spill import Spill


class Cells:
    """Which sequences of the model hold which blocks.

    A sequence belongs to a running request, or it is an *anchor*: it only keeps what ended requests
    left. Invariant: every block that is used or kept is held by a sequence, none by two anchors.
    """

    def __init__(self, model: Model, block_tokens: int, n_anchors: int, spill: Spill) -> None:
        self._model = model
        self._block_tokens = block_tokens
        self._n_anchors = n_anchors
        self._spill = spill
        self._free = list(range(model.limits.n_sequences))
        self._running: dict[int, int] = {}  # by key of the request
        self._anchors: set[int] = set()
        self._held: dict[int, dict[int, int]] = {}  # by sequence: its blocks and their numbers
        self._holders: dict[int, set[int]] = {}  # by block: sequences

    def begin(self, key: int) -> None:
        """A sequence for a request that runs from now on."""
        self._running[key] = sequence = self._free.pop()
        self._held[sequence] = {}

    def sequence(self, key: int, table: Sequence[int]) -> int:
        """The sequence of a running request, which has these blocks by now."""
        sequence = self._running[key]
        for number in range(len(self._held[sequence]), len(table)):
            self._add(sequence, table[number], number)
        return sequence

    def end(self, key: int) -> None:
        """The request runs no longer: its sequence anchors its blocks, alone of all anchors."""
        sequence = self._running.pop(key)
        twice: dict[int, list[int]] = {}
        for block in self._held[sequence]:
            for other in self._holders[block] & self._anchors:
                twice.setdefault(other, []).append(block)
        self._anchors.add(sequence)
        for other, blocks in twice.items():
            self._remove(other, blocks)
        self._remove(sequence, [])

    def is_crowded(self) -> bool:
        """Whether blocks must be evicted for want of sequences; superfluous anchors go first."""
        for anchor in list(self._anchors):
            if len(self._anchors) <= self._n_anchors:
                return False
            if all(len(self._holders[block]) > 1 for block in self._held[anchor]):
                self._remove(anchor, list(self._held[anchor]))
        return len(self._anchors) > self._n_anchors

    def apply(self, moves: Iterable[Move]) -> None:
        """Does what has been decided."""
        for (kind, key), group in groupby(moves, key=lambda move: (move.kind, move.key)):
            match kind:
                case "share":
                    self._share(key, list(group))
                case "drop":
                    self._drop([move.block for move in group])
                case _:
                    for move in group:
                        self._carry(move)

    def _carry(self, move: Move) -> None:
        if move.kind == "save":
            sequence = next(iter(self._holders[move.block]))
            first = self._held[sequence][move.block] * self._block_tokens
            state = self._model.save(sequence, first, first + self._block_tokens)
            self._spill.keep(move.name, state)
        elif move.kind == "load":
            sequence = self._running[move.key]
            self._model.restore(sequence, self._spill.take(move.name))
            self._add(sequence, move.block, move.number)
        elif move.kind == "sink":
            self._spill.sink(move.name)
        else:
            self._spill.discard(move.name)

    def _share(self, key: int, moves: list[Move]) -> None:
        """Consecutive blocks that one sequence holds are copied in one call."""
        target = self._running[key]
        while moves:
            source = max(self._holders[moves[0].block], key=lambda one: self._n_first(one, moves))
            n_blocks = self._n_first(source, moves)
            first, last = moves[0].number, moves[n_blocks - 1].number + 1
            self._model.copy(source, target, first * self._block_tokens, last * self._block_tokens)
            for move in moves[:n_blocks]:
                self._add(target, move.block, move.number)
            del moves[:n_blocks]

    def _n_first(self, sequence: int, moves: list[Move]) -> int:
        held = self._held[sequence]
        return next((n for n, move in enumerate(moves) if move.block not in held), len(moves))

    def _drop(self, blocks: list[int]) -> None:
        leaving: dict[int, list[int]] = {}
        for block in blocks:
            for sequence in self._holders.get(block, ()):
                leaving.setdefault(sequence, []).append(block)
        for sequence, gone in leaving.items():
            self._remove(sequence, gone)

    def _add(self, sequence: int, block: int, number: int) -> None:
        self._held[sequence][block] = number
        self._holders.setdefault(block, set()).add(sequence)

    def _remove(self, sequence: int, blocks: list[int]) -> None:
        """The sequence holds these blocks no longer; an anchor that holds none is free."""
        held = self._held[sequence]
        for first, last in _runs(sorted(held[block] for block in blocks)):
            self._model.cut(sequence, first * self._block_tokens, last * self._block_tokens)
        for block in blocks:
            del held[block]
            self._holders[block].remove(sequence)
            if not self._holders[block]:
                del self._holders[block]
        if not held and sequence in self._anchors:
            self._anchors.remove(sequence)
            self._free.append(sequence)


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Consecutive numbers as first and last + 1."""
    for _, run in groupby(enumerate(numbers), key=lambda one: one[1] - one[0]):
        group = [number for _, number in run]
        yield group[0], group[-1] + 1
