"""What choosing a token means whichever model computed the logits.

Pure functions: they must never depend on when or where the tokens before were chosen.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from tertulia.replica.model import Choice

RECENT_TOKENS = 64  # what the repetition penalty looks back on, llama.cpp's own default
LOOK_BACK_TOKENS = 256  # where they are looked for, as control tokens do not count


def recent_tokens(tokens: Sequence[int], controls: Collection[int]) -> list[int]:
    """The tokens that the repetition penalty counts; control tokens not, so that ends stay free."""
    spoken = [token for token in tokens[-LOOK_BACK_TOKENS:] if token not in controls]
    return spoken[-RECENT_TOKENS:]


def reply_biases(
    choice: Choice, reply: Sequence[int], controls: Collection[int]
) -> list[tuple[int, float]]:
    """Presence and frequency penalty, as what is added to which logits."""
    if not (choice.presence_penalty or choice.frequency_penalty):
        return []
    return [
        (token, -choice.presence_penalty - choice.frequency_penalty * count)
        for token, count in Counter(reply).items()
        if token not in controls
    ]


def seed_at(seed: int, position: int) -> int:
    """A well-mixed 32-bit seed for one position, after the finaliser of MurmurHash3."""
    mixed = (seed ^ (position * 0x9E3779B1)) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return mixed ^ (mixed >> 16)
