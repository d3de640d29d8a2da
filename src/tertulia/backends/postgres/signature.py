"""A text's signature (`core.search`) as Postgres keeps it and compares it."""

from __future__ import annotations

from asyncpg import BitString

from tertulia.core.search import SIGNATURE_BITS, folded, signature


def signature_bits(text: str) -> BitString:
    """The signature of a text, or of a word."""
    return BitString.from_int(signature(folded(text)), SIGNATURE_BITS)
