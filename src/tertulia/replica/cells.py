"""Counts the cache tokens that sequences hold; those they share are counted once.

It must agree with the model's cache at every moment; it never touches the model itself.
"""

from collections import Counter


class Cells:
    """Which cache cell each position of each sequence uses.

    A sequence is busy (it runs) or parked (it waits to be reused and may be dropped).
    Invariant: a cell is free or has users, never both, and together they are all cells.
    """

    def __init__(self, n_cells: int) -> None:
        self.n_cells = n_cells
        self._free = list(range(n_cells))
        self._users: Counter[int] = Counter()
        self._busy_users: Counter[int] = Counter()
        self._held: dict[int, list[int]] = {}
        self._parked: set[int] = set()

    @property
    def n_free(self) -> int:
        return len(self._free)

    @property
    def n_available(self) -> int:
        """Cells that no busy sequence uses: the free ones and those only parked ones hold."""
        return self.n_cells - len(self._busy_users)

    @property
    def n_parked(self) -> int:
        return self.n_available - self.n_free

    def n_busy_alone(self, sequence: int) -> int:
        """Cells that become available when this busy sequence goes."""
        return sum(1 for cell in self._held.get(sequence, ()) if self._busy_users[cell] == 1)

    def extend(self, sequence: int, n_tokens: int) -> None:
        assert sequence not in self._parked
        assert n_tokens <= len(self._free), "the plan promised more cells than there are"
        taken = [self._free.pop() for _ in range(n_tokens)]
        self._users.update(taken)
        self._busy_users.update(taken)
        self._held.setdefault(sequence, []).extend(taken)

    def share(self, source: int, target: int, n_tokens: int) -> None:
        assert not self._held.get(target), "a sequence is copied into an empty one only"
        shared = self._held[source][:n_tokens]
        assert len(shared) == n_tokens
        self._users.update(shared)
        self._busy_users.update(shared)
        self._held[target] = shared

    def park(self, sequence: int) -> None:
        assert sequence not in self._parked
        self._parked.add(sequence)
        for cell in self._held.get(sequence, ()):
            _drop(self._busy_users, cell)

    def wake(self, sequence: int) -> None:
        self._parked.remove(sequence)
        self._busy_users.update(self._held.get(sequence, ()))

    def cut(self, sequence: int, n_tokens: int) -> None:
        held = self._held.get(sequence, [])
        for cell in held[n_tokens:]:
            if sequence not in self._parked:
                _drop(self._busy_users, cell)
            if _drop(self._users, cell):
                self._free.append(cell)
        del held[n_tokens:]

    def clear(self, sequence: int) -> None:
        self.cut(sequence, 0)
        self._held.pop(sequence, None)
        self._parked.discard(sequence)


def _drop(users: Counter[int], cell: int) -> bool:
    """Takes one user from a cell; true when it was the last."""
    users[cell] -= 1
    if users[cell]:
        return False
    del users[cell]
    return True
