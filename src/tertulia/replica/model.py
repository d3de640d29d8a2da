"""The few calls the step loop needs from a model, and the values that pass through them.

Nothing here computes; an implementation is used by one thread only, `cancel` excepted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Cancelled(RuntimeError):
    """The decode was interrupted by `cancel`; what it had written must be cut again."""


@dataclass(frozen=True)
class ModelLimits:
    """What the model was opened with."""

    window_tokens: int  # prompt and reply of one sequence
    n_cache: int  # tokens of all sequences together, shared ones counted once
    n_sequences: int  # of running requests and of what is kept of ended ones
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
    * `choose` depends only on its arguments and the logits: a sequence that is preempted, or moved
      to another replica, goes on as if nothing had happened;
    * `copy` shares cache tokens, it does not double them;
    * positions `first` to `last` (not included) are whole blocks, except that `cut` may end anywhere.
    """

    @property
    def limits(self) -> ModelLimits: ...

    def encode(self, text: str) -> list[int]:
        """The tokens of plain text; a control token's text is plain text like any other."""

    def piece(self, token: int) -> bytes:
        """The bytes of one token, possibly part of a character; nothing for a control token."""

    def is_end(self, token: int) -> bool: ...

    def decode(self, entries: Sequence[Entry]) -> None: ...

    def choose(self, row: int, choice: Choice, tokens: Sequence[int], n_prompt: int) -> int:
        """The token after the entry at `row` of the last batch; `tokens` are prompt and reply."""

    def copy(self, source: int, target: int, first: int, last: int) -> None:
        """Lets `target` hold these positions of `source` too; it holds all before them already."""

    def cut(self, sequence: int, first: int, last: int) -> None:
        """The sequence holds these positions no longer."""

    def save(self, sequence: int, first: int, last: int) -> bytes:
        """The content of these positions; as many bytes for every block."""

    def restore(self, sequence: int, state: bytes) -> None:
        """Gives the sequence the positions that `save` returned; it holds all before them."""

    def cancel(self) -> None:
        """Ends a running decode early; the one call that another thread may make."""

    def close(self) -> None: ...
