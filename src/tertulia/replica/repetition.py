"""Tells a reply that runs in a loop, as small models' replies do until the limit ends them.

A pure function of the tokens: it must never depend on when or where they were produced.
"""

from collections.abc import Sequence
from dataclasses import dataclass

LOOPS = "repetition_detected"  # vLLM's `stop_reason` beside the finish "repetition"
MAX_PATTERN = 128  # tokens; a loop longer than a paragraph is rare, and each size costs time
MAX_COUNT = 64  # repetitions


@dataclass(frozen=True)
class RepetitionRule:
    """A reply whose end is one pattern of so many tokens, so many times in a row, is a loop.

    The names are those of vLLM's `repetition_detection`.
    """

    max_pattern_size: int
    min_pattern_size: int
    min_count: int

    def __post_init__(self) -> None:
        assert 1 <= self.min_pattern_size <= self.max_pattern_size <= MAX_PATTERN
        assert 2 <= self.min_count <= MAX_COUNT

    def ends(self, tokens: Sequence[int], n_prompt: int) -> bool:
        """Whether the reply after the prompt is, as of its last token, a loop."""
        for size in range(self.min_pattern_size, self.max_pattern_size + 1):
            n_tokens = size * self.min_count
            if n_tokens > len(tokens) - n_prompt:
                return False
            # Most tokens differ from the one a pattern earlier: nothing is copied for those.
            if tokens[-1] == tokens[-1 - size] and _is_periodic(tokens[-n_tokens:], size):
                return True
        return False


def _is_periodic(tail: Sequence[int], size: int) -> bool:
    return tail[size:] == tail[:-size]
