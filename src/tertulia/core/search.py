"""How texts are searched: letter by letter in any case, with a small signature of each text that
tells nearly all texts apart that can't hold a word. The same for every store."""

from __future__ import annotations

from functools import lru_cache, reduce
from itertools import accumulate
from operator import or_
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

# Longer words than this find nothing more precisely and only cost time.
QUERY_CHARS: Final = 200

# A reply of 1,200 letters sets a third of so many bits; a word of five letters then looks like one
# of its words in 4 of 100 texts without it, one of eight letters in 1 of 1000.
SIGNATURE_BITS: Final = 1024
_WORD_BITS: Final = 64  # of what a database calculates with
SIGNATURE_WORDS: Final = SIGNATURE_BITS // _WORD_BITS
_WORDS: Final = Struct(f"<{SIGNATURE_WORDS}q")
_MASKS: Final = tuple(1 << place for place in range(SIGNATURE_BITS))

# From here on two letters say as much as three of an alphabet: Chinese, Japanese, Korean, emoji.
_WIDE: Final = "\u2e80"

# A search looks through so many conversations and then says where to go on. It takes a tenth of a
# second for them, whoever has more.
LOOKED_THROUGH: Final = 20_000
# A word without a signature has to be looked for in every text.
LOOKED_THROUGH_WHOLLY: Final = 2_000

# What is shown of a text around what was found, and how much of it before that.
SNIPPET_CHARS: Final = 160
_LEAD_CHARS: Final = 40


def folded(text: str) -> str:
    """A text without regard to case, as Unicode folds it: `ß` is `ss`, and the dot of `İ` is a
    letter of its own. Accents stay."""
    return text.casefold()


def searched(query: str) -> str:
    """A search word as it is compared: folded and bounded."""
    return folded(query[:QUERY_CHARS])


def looked_through(word: str) -> int:
    """How many conversations one search for the word looks through at most."""
    return LOOKED_THROUGH if signature(word) else LOOKED_THROUGH_WHOLLY


def signature(text: str) -> int:
    """One bit for each gram of a folded text: a text that holds a word has all bits of the word.

    A gram is three letters of an alphabet in a row, or two wide ones; it tells by itself that it is
    one, so that every gram of a word is one of the text around it.
    """
    return reduce(or_, map(_bit, _grams(text)), 0)


def words_of(bits: int) -> tuple[int, ...]:
    """A signature as signed integers of 64 bits, the lowest first."""
    return _WORDS.unpack(bits.to_bytes(SIGNATURE_BITS // 8, "little"))


class Snippet(NamedTuple):
    """A piece of a text around what was found in it, on one line."""

    before: str
    match: str
    after: str


def snippet(text: str, word: str) -> Snippet:
    """The first place of a folded word in a text that holds it; ValueError if it doesn't."""
    at = folded(text).index(word)
    first, last = _place(text, at), _place(text, at + len(word) - 1)
    start = max(0, first - _LEAD_CHARS)
    end = max(last + 1, start + SNIPPET_CHARS)
    pieces = (text[start:first], text[first : last + 1], text[last + 1 : end])
    return Snippet(*("".join(" " if c.isspace() else c for c in piece) for piece in pieces))


def _grams(text: str) -> set[str]:
    words = text.split()
    threes = {word[n : n + 3] for word in words for n in range(len(word) - 2)}
    if text.isascii():
        return threes
    twos = {word[n : n + 2] for word in words for n in range(len(word) - 1)}
    return {gram for gram in threes if max(gram) < _WIDE} | {
        gram for gram in twos if min(gram) >= _WIDE
    }


# A language has some thousand grams; with their bits at hand a signature costs half as much.
@lru_cache(maxsize=1 << 14)
def _bit(gram: str) -> int:
    return _MASKS[crc32(gram.encode("utf-8", "surrogatepass")) % SIGNATURE_BITS]


def _place(text: str, at: int) -> int:
    """Which letter of a text became the one at a place of the folded text."""
    ends = accumulate(len(folded(letter)) for letter in text)
    return next(n for n, end in enumerate(ends) if end > at)
