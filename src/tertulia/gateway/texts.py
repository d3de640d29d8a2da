"""Texts that are kept for many conversations are counted before they are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tertulia.core.types import TokenIds
from tertulia.gateway.problems import Problem, invalid

# A token has four bytes or so; a text with more than this many for each is not worth counting, and
# to count ever longer ones would be an attack.
_TOKEN_BYTES: Final = 20


def demand_said(text: str) -> str:
    """The text without the empty space around it; Problem if nothing is left."""
    text = text.strip()
    if not text:
        raise invalid("text", "The field text holds no word.")
    return text


def counted(text: str, limit: int, *, encode: Callable[[str], TokenIds]) -> int:
    """The text's tokens; Problem beyond `limit` of them. Sizes are refused by bytes first."""
    size, most = len(text.encode()), limit * _TOKEN_BYTES
    if size > most:
        raise _too_long(most, size, "bytes")
    tokens = len(encode(text))
    if tokens > limit:
        raise _too_long(limit, tokens, "tokens")
    return tokens


def _too_long(limit: int, count: int, unit: str) -> Problem:
    sentence = f"The text has {count} {unit}; {limit} are allowed."
    more = {"limit": limit, "count": count, "unit": unit}
    return Problem("text_too_long", sentence, field="text", more=more)
