"""A model without arithmetic, for tests of the engine's own logic: its next token is a pure
function of all tokens before it, so any mistake with the cache changes what it says.

It must be as strict as the real one: wrong positions and a full cache are errors.
"""

import hashlib
import json
from collections.abc import Callable, Sequence

from tertulia.core.costs import StepCost
from tertulia.core.prefix import CacheLimits
from tertulia.core.steps import StepBounds
from tertulia.replica.engine import Engine, EngineSettings
from tertulia.replica.generation import Emission
from tertulia.replica.inbox import QueueBounds
from tertulia.replica.model import Choice, Entry, ModelLimits
from tertulia.replica.spill import Spill

END = 256
TOKEN_S = 0.001
STATE_BYTES = 200  # of a saved block
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
        n_sequences: int = 16,
        window_tokens: int = 500,
    ) -> None:
        self._next_token = next_token
        self.limits = ModelLimits(
            window_tokens, n_cache, n_sequences, 256, 256, 258, block_tokens=4, idle_share=1.0
        )
        self._tokens: dict[int, int] = {}  # by cell
        self._held: dict[int, dict[int, int]] = {n: {} for n in range(n_sequences)}  # by position
        self._new_cell = 0
        self._rows: list[int | None] = []
        self.batches: list[list[Entry]] = []
        self.closed = False
        self.seconds = 0.0  # a clock that only computing moves

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def piece(self, token: int) -> bytes:
        return b"" if token in CONTROLS else bytes([token])

    def is_end(self, token: int) -> bool:
        return token == END

    def decode(self, entries: Sequence[Entry]) -> None:
        assert self.n_used + len(entries) <= self.limits.n_cache, "the cache is full"
        self.batches.append(list(entries))
        self.seconds += TOKEN_S * len(entries)
        self._rows = []
        for entry in entries:
            held = self._held[entry.sequence]
            assert sorted(held) == list(range(entry.position)), "all before it, and not itself"
            held[entry.position] = self._written(entry.token)
            said = self._next_token(self.tokens(entry.sequence)) if entry.wants_logits else None
            self._rows.append(said)

    def choose(self, row: int, choice: Choice, tokens: Sequence[int], n_prompt: int) -> int:
        assert 0 < n_prompt <= len(tokens)
        if choice.constraint is not None:
            choice.constraint.biases(tokens[n_prompt:])
        said = self._rows[row]
        assert said is not None, "no logits were asked for this row"
        return said

    def copy(self, source: int, target: int, first: int, last: int) -> None:
        assert source != target
        assert sorted(self._held[target]) == list(range(first)), "all before them, and not these"
        for position in range(first, last):
            self._held[target][position] = self._held[source][position]

    def cut(self, sequence: int, first: int, last: int) -> None:
        for position in range(first, last):
            self._held[sequence].pop(position, None)

    def save(self, sequence: int, first: int, last: int) -> bytes:
        held = self._held[sequence]
        tokens = [self._tokens[held[position]] for position in range(first, last)]
        return json.dumps([first, tokens]).encode().ljust(STATE_BYTES)

    def restore(self, sequence: int, state: bytes) -> None:
        first, tokens = json.loads(state)
        assert sorted(self._held[sequence]) == list(range(first))
        assert self.n_used + len(tokens) <= self.limits.n_cache, "the cache is full"
        for position, token in enumerate(tokens, first):
            self._held[sequence][position] = self._written(token)

    def cancel(self) -> None:
        return

    def close(self) -> None:
        self.closed = True

    def tokens(self, sequence: int) -> list[int]:
        """What this sequence holds."""
        held = self._held[sequence]
        return [self._tokens[held[position]] for position in sorted(held)]

    @property
    def n_used(self) -> int:
        return len({cell for held in self._held.values() for cell in held.values()})

    def _written(self, token: int) -> int:
        self._new_cell += 1
        self._tokens[self._new_cell] = token
        return self._new_cell


def engine_over(
    model: FakeModel,
    deliver: Callable[[list[Emission]], None],
    n_slots: int = 4,
    n_queue: int = 64,
    n_queue_tokens: int = 2**63,
    n_anchors: int = 4,
    **tiers: int,
) -> Engine:
    """An engine with blocks of 4 tokens and 16 tokens a step, on the model's clock."""
    return Engine(
        model,
        EngineSettings(
            StepBounds(n_slots, 16.5 * TOKEN_S, growth_tokens=4, n_batch=16, n_mixed=16),
            CacheLimits(model.limits.n_cache // 4, 4, **tiers),
            n_anchors,
            QueueBounds(n_queue, n_queue_tokens),
        ),
        StepCost(fixed_s=1e-9, token_s=TOKEN_S),
        Spill(STATE_BYTES, tiers.get("n_disk", 0)),
        deliver,
        clock=lambda: model.seconds,
    )
