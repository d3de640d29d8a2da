"""The few calls the step loop needs from a model, and the values that pass through them.

Nothing here computes; an implementation is used by one thread only, `cancel` excepted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class NoRoom(RuntimeError):
    """The batch does not fit into the cache; nothing has been changed."""


class Cancelled(RuntimeError):
    """The decode was interrupted by `cancel`; what it had written must be cut again."""


@dataclass(frozen=True)
class ModelLimits:
    """What the model was opened with."""

    window_tokens: int  # prompt and reply of one sequence
    n_cache: int  # tokens of all sequences together, shared ones counted once
    n_sequences: int  # running and parked
    n_batch: int  # tokens in one decode
    n_vocabulary: int  # ids from here on do not exist


@dataclass(frozen=True, slots=True)
class Entry:
    """One token of a batch, its place in its sequence, and whether its logits are wanted."""

    token: int
    position: int
    sequence: int
    wants_logits: bool


@dataclass(frozen=True)
class Choice:
    """How the next token is chosen; temperature 0 takes the likeliest."""

    temperature: float
    top_p: float
    repetition_penalty: float
    seed: int


class Model(Protocol):
    """A model with its cache. Promises:

    * `decode` evaluates all entries together, or raises and leaves the lengths known to the caller;
    * `choose` depends only on its arguments and the logits: a sequence that is put back, or moved
      to another replica, goes on as if nothing had happened;
    * `copy` shares cache tokens, it does not double them.
    """

    @property
    def limits(self) -> ModelLimits: ...

    def encode(self, text: str) -> list[int]:
        """The tokens of plain text; a control token's text is plain text like any other."""

    def piece(self, token: int) -> bytes:
        """The bytes of one token, possibly part of a character; nothing for a control token."""

    def is_end(self, token: int) -> bool: ...

    def decode(self, entries: Sequence[Entry]) -> None: ...

    def choose(self, row: int, choice: Choice, recent: Sequence[int], position: int) -> int:
        """The token after the entry at `row` of the last batch."""

    def copy(self, source: int, target: int, n_tokens: int) -> None:
        """Makes the first `n_tokens` of `source` the content of the empty `target`."""

    def cut(self, sequence: int, n_tokens: int) -> None:
        """Forgets everything of `sequence` after its first `n_tokens`."""

    def save(self, sequence: int) -> bytes: ...

    def restore(self, sequence: int, state: bytes) -> None:
        """Makes what `save` gave the content of the empty `sequence`, or raises `NoRoom`."""

    def cancel(self) -> None:
        """Ends a running decode early; the one call that another thread may make."""

    def close(self) -> None: ...
