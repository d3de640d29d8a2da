"""What is shown: a long conversation with code, tables, lists and formulas, and one long answer.

The same texts in every run, so that figures can be compared.
"""

from __future__ import annotations

from typing import Final

MESSAGES: Final = 500
ANSWER_CHARS: Final = 22_000

_WORDS: Final = (
    "Each new token reads *every* weight once and computes little with it, so a step takes as long"
    " as the **memory** takes, and a larger batch is nearly free until arithmetic is the limit."
)
_LIST: Final = (
    "1. Reading costs the same for one sequence or for many.\n"
    "2. So **batching** is nearly free at first.\n"
    "   - That is why $1.50 or $3 a million tokens can be enough.\n"
    "   - It ends where `compute` becomes the limit."
)
_TABLE: Final = (
    "| batch | tokens/s | bound by |\n|:--|--:|:-:|\n"
    "| 1 | 209 | memory |\n| 32 | 6,100 | memory |\n| 512 | 48,000 | compute |"
)
_CODE: Final = (
    "```python\n"
    "def step_seconds(batch: int, weights: float = 16e9, bandwidth: float = 3.35e12) -> float:\n"
    '    """The time of one decode step: the slower of reading and computing."""\n'
    "    reading = weights / bandwidth\n"
    "    computing = 2 * batch * 8e9 / 989e12  # two operations for each weight\n"
    "    return max(reading, computing)\n"
    "```"
)
_FORMULA: Final = "$$t = \\frac{16\\,\\text{GB}}{3.35\\,\\text{TB/s}} \\approx 4.8\\,\\text{ms}$$"
# Every third answer has code, which makes 84 of them in 250.
_PARTS: Final = (
    (_WORDS, _LIST, _CODE, _WORDS),
    (_WORDS, _TABLE, _LIST, _WORDS, _WORDS),
    (_WORDS, _LIST, _FORMULA, _WORDS, _LIST),
)


def answer(n: int) -> str:
    """The `n`th answer of the conversation, about 1.2 kB."""
    return "\n\n".join((f"## Part {n}", *_PARTS[n % 3], _WORDS))


def question(n: int) -> str:
    return f"Why is decode bound by memory, and what follows from that for a batch of {n}?"


def long_answer() -> str:
    """22 kB with everything in it, over and over."""
    parts: list[str] = []
    n = 0
    while sum(map(len, parts)) < ANSWER_CHARS:
        parts.append(answer(n) + "\n\n")
        n += 1
    return "".join(parts)[:ANSWER_CHARS]
