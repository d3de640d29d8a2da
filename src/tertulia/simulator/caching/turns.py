"""A turn on its way through a simulated fleet, and the text that its prompt consists of."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from tertulia.core.blocks import Owner, block_name


@dataclass(slots=True)
class Text:
    """A conversation's prompts, as a cache tells their blocks apart: by name.

    `version` changes with each cut: what follows the shared beginning is another text from then
    on. `ids` stand for the blocks' tokens where a trace has them.
    """

    owner: Owner
    version: int = 0
    ids: Sequence[int] | None = None
    _names: list[bytes] = field(default_factory=list)

    def cut(self, version: int, block_tokens: int) -> None:
        """Another text follows the shared beginning from now on."""
        self.version = version
        del self._names[self.owner.n_shared // block_tokens :]

    def names(self, n_blocks: int, block_tokens: int) -> list[bytes]:
        """The names of its first blocks."""
        while len(self._names) < n_blocks:
            number = len(self._names)
            token = self.version if self.ids is None else self.ids[number]
            before = self._names[-1] if self._names else b""
            tokens = array("I", [token]) * block_tokens
            self._names.append(block_name(before, tokens, self.owner, number))
        return self._names[:n_blocks]


@dataclass(eq=False, slots=True)
class Turn:
    """One message and its reply: tokens, and the seconds at which things happened.

    `cached` is what its engine found of the prompt, None until it has looked.
    """

    key: int
    conversation: str
    text: Text
    prompt: int
    reply: int
    asked_at: float
    replica: int = -1
    router: int = 0
    cached: int | None = None
    unread: int = 0
    first_at: float = 0.0
    ended_at: float = 0.0
    has_moved: bool = False

    @property
    def ttft_s(self) -> float:
        """From the question to the first token."""
        return self.first_at - self.asked_at

    @property
    def gap_s(self) -> float:
        """Between two tokens of the reply, in the mean."""
        return (self.ended_at - self.first_at) / (self.reply - 1) if self.reply > 1 else 0.0
