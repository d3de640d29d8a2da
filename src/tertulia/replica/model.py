"""The few calls the step loop needs from a model, and the values that pass through them.

Nothing here computes. One thread does everything that touches the cache; the vocabulary (`limits`,
`encode`, `piece`, `is_end`) and `cancel` are for all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


class Cancelled(RuntimeError):
    """The decode was interrupted by `cancel`; what it had written must be cut again."""


class NotReady(RuntimeError):
    """Something must be installed or made first; the message says what, and by which command."""


@dataclass(frozen=True)
class ModelSettings:
    """How much of the machine the model may use."""

    threads: int
    n_cache: int
    n_sequences: int
    n_batch: int


@dataclass(frozen=True)
class ModelLimits:
    """What the model was opened with."""

    window_tokens: int  # prompt and reply of one sequence
    n_cache: int  # tokens of all sequences together, shared ones counted once
    n_sequences: int  # of running requests and of what is kept of ended ones
    n_batch: int  # tokens in one decode
    n_mixed: int  # tokens in one decode of several sequences
    n_vocabulary: int  # ids from here on do not exist
    block_tokens: int  # what is copied, saved and restored are whole blocks of so many tokens
    idle_share: float  # of the cache, for what ended requests left: what can lie there for nothing


@dataclass(frozen=True, slots=True)
class Entry:
    """One token of a batch, its place in its sequence, and whether its logits are wanted."""

    token: int
    position: int
    sequence: int
    wants_logits: bool


class Stuck(RuntimeError):
    """No token may follow, or finding out takes more than it may: this one reply can't go on."""


class Constraint(Protocol):
    """What a reply may look like. It may remember how far it came, but says nothing else for it."""

    def biases(self, reply: Sequence[int]) -> list[tuple[int, float]]:
        """What to add to which logits, so that only tokens that may follow are left; or `Stuck`."""


@dataclass(frozen=True)
class Choice:
    """How the next token is chosen; temperature 0 takes the likeliest.

    Repetition is counted over prompt and reply, presence and frequency over the reply alone.
    """

    temperature: float
    top_p: float
    repetition_penalty: float
    seed: int
    top_k: int = 0  # 0: all
    min_p: float = 0.0  # of the likeliest token's probability
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    biases: tuple[tuple[int, float], ...] = ()  # token, what is added to its logit
    constraint: Constraint | None = field(default=None, compare=False)


class Model(Protocol):
    """A model with its cache. Promises:

    * `decode` evaluates all entries together, or raises and leaves the lengths known to the caller;
    * `choose` depends only on its arguments and the logits: a sequence that is preempted, or moved
      to another replica, goes on as if nothing had happened;
    * `copy` shares cache tokens, it does not double them;
    * positions are from `first` up to `last`, not included; but for `cut` they are whole blocks.
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
        """The token after the entry at `row` of the last batch, which is the last of `tokens`.

        The first `n_prompt` of them are the prompt. `Stuck` if the choice's constraint allows none.
        """

    def copy(self, source: int, target: int, first: int, last: int) -> None:
        """Lets `target` hold these positions of `source` too; it holds all before them already."""

    def cut(self, sequence: int, first: int, last: int) -> None:
        """The sequence holds these positions no longer."""

    def save(self, sequence: int, first: int, last: int) -> bytes:
        """The content of these positions; as many bytes for every block."""

    def restore(self, sequence: int, state: bytes) -> None:
        """Gives the sequence the positions that `save` returned; it holds all before them."""

    def cancel(self) -> None:
        """Ends a running decode early; called by another thread."""

    def close(self) -> None: ...
