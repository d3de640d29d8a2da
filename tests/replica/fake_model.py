"""A model without arithmetic, for tests of the engine's own logic: its next token is a pure
function of all tokens before it, so any mistake with the cache changes what it says.

It must be as strict as the real one: wrong positions and a full cache are errors.
"""

import hashlib
from collections.abc import Callable, Sequence

from tertulia.replica.model import Choice, Entry, ModelLimits, NoRoom

END = 256
CONTROLS = (256, 257)  # the end of a reply, and one more


def hashed(tokens: list[int]) -> int:
    """A letter that depends on every token before it."""
    return 97 + hashlib.sha256(repr(tokens).encode()).digest()[0] % 26


class FakeModel:
    """A `Model` whose tokens are bytes."""

    def __init__(
        self,
        next_token: Callable[[list[int]], int] = hashed,
        n_cache: int = 1000,
        n_sequences: int = 12,
        window_tokens: int = 500,
    ) -> None:
        self._next_token = next_token
        self.limits = ModelLimits(window_tokens, n_cache, n_sequences, 256, 258)
        self._cells: dict[int, tuple[int, int]] = {}  # cell: token, position
        self._held: dict[int, list[int]] = {n: [] for n in range(n_sequences)}
        self._new_cell = 0
        self._rows: list[int | None] = []
        self.batches: list[list[Entry]] = []
        self.closed = False

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def piece(self, token: int) -> bytes:
        return b"" if token in CONTROLS else bytes([token])

    def is_end(self, token: int) -> bool:
        return token == END

    def decode(self, entries: Sequence[Entry]) -> None:
        in_use = {cell for held in self._held.values() for cell in held}
        if len(in_use) + len(entries) > self.limits.n_cache:
            raise NoRoom("full")
        self.batches.append(list(entries))
        self._rows = []
        for entry in entries:
            held = self._held[entry.sequence]
            assert entry.position == len(held), "a position is written once, in order"
            self._cells[self._new_cell] = (entry.token, entry.position)
            held.append(self._new_cell)
            self._new_cell += 1
            said = self._next_token(self.tokens(entry.sequence)) if entry.wants_logits else None
            self._rows.append(said)

    def choose(self, row: int, choice: Choice, tokens: Sequence[int], n_prompt: int) -> int:
        assert 0 < n_prompt <= len(tokens)
        if choice.constraint is not None:
            choice.constraint.biases(tokens[n_prompt:])
        said = self._rows[row]
        assert said is not None, "no logits were asked for this row"
        return said

    def copy(self, source: int, target: int, n_tokens: int) -> None:
        assert not self._held[target]
        self._held[target] = self._held[source][:n_tokens]

    def cut(self, sequence: int, n_tokens: int) -> None:
        del self._held[sequence][n_tokens:]

    def save(self, sequence: int) -> bytes:
        return bytes(0) + repr(self.tokens(sequence)).encode()

    def restore(self, sequence: int, state: bytes) -> None:
        assert not self._held[sequence]
        for position, token in enumerate(int(part) for part in state[1:-1].split(b",")):
            self._cells[self._new_cell] = (token, position)
            self._held[sequence].append(self._new_cell)
            self._new_cell += 1

    def cancel(self) -> None:
        return

    def close(self) -> None:
        self.closed = True

    def tokens(self, sequence: int) -> list[int]:
        """What this sequence holds."""
        return [self._cells[cell][0] for cell in self._held[sequence]]

    @property
    def n_used(self) -> int:
        return len({cell for held in self._held.values() for cell in held})
