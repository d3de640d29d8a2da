"""What every prompt of a conversation begins with: the platform's words, then the person's own.

The platform's come first and are the same ids for everybody, so that their cache is shared; from
the first token of the person's own on it is theirs alone. Neither changes between two cuts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tertulia.core.prompt import system_ids
from tertulia.core.types import TokenIds

# What a person says for all conversations is read again wherever the cache is cold, and takes room
# from each of them: a page and a half is much for wishes, and an eighth of the smallest plan.
INSTRUCTIONS_TOKENS: Final = 1_000
# Never more than this part of a window, or a small model would have no room for the talk itself.
_WINDOW_PART: Final = 4

# Says whose words follow, so that they aren't taken for the platform's.
_ASKED: Final = "\n\nThe person you talk with asks you to keep to this:\n"

NO_INSTRUCTIONS: Final = 0


@dataclass(frozen=True, slots=True)
class InstructionsVersion:
    """What a person wants said to the model in every conversation, in one of its versions.

    `tokens` is what it takes in a prompt (`asked`), counted once with the vocabulary named by
    `tokenizer`. `written_at` is by the store's clock.
    """

    version: int
    text: str
    tokens: int
    tokenizer: str
    written_at: float


@dataclass(frozen=True, slots=True)
class Footing:
    """Which versions a conversation keeps to: of the system prompt, and of its owner's own
    instructions (`NO_INSTRUCTIONS`: none)."""

    prompt_version: str
    instructions: int


@dataclass(frozen=True, slots=True)
class Opening:
    """The system message of a prompt. Its first `shared_tokens` hold nothing of a person."""

    text: str
    ids: TokenIds
    shared_tokens: int


def opening(encode: Callable[[str], TokenIds], system: str, instructions: str) -> Opening:
    """The platform's words as they are for everybody, then the person's, if there are any."""
    shared = system_ids(encode, system)
    if not instructions:
        return Opening(system, shared, len(shared))
    own = asked(instructions)
    return Opening(system + own, shared + encode(own), len(shared))


def asked(instructions: str) -> str:
    """How a person's instructions stand after the platform's words."""
    return _ASKED + instructions


def most_instructions(window_tokens: int) -> int:
    """The most tokens that instructions may take (as `asked`) where a prompt has this window."""
    return min(INSTRUCTIONS_TOKENS, window_tokens // _WINDOW_PART)
