"""A language for tests only: a tiny vocabulary, and answers that are a function of the prompt.

So an answer that was broken off and continued anywhere can be compared with an undisturbed one.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from tertulia.core.turn import pack_ids
from tertulia.core.types import Chunk, PromptMessage, TokenIds, Unit

SERVED: Final = "fake-1"
SYSTEM, USER, ASSISTANT, END, EOS = 1, 2, 3, 4, 5
_MARKS: Final = {"<system>": SYSTEM, "<user>": USER, "<assistant>": ASSISTANT, "<end>": END}
_FIRST_WORD: Final = 100
_FIRST_CHAR: Final = 100_000
_WORDS: Final = re.findall(
    r"\w+",
    "a and ash bark birch bough brook cedar clay cloud dawn dew dusk elm fern field fir fog frost "
    "glade grove heath hill holly ivy lake larch leaf light maple marsh mist moon moor moss oak "
    "path pine pond rain reed ridge river root rowan sand sedge shade sky snow sorrel spruce "
    "stone storm stream sun the thorn tide vale willow wind wood yew",
)
WORDS: Final = tuple(f" {word}" for word in _WORDS)
_ENDS: Final = (".", "!", "?", ".\n", "…")
# Characters that take several tokens, as emoji do in byte-level vocabularies.
_SPLIT: Final = {"é": (9001, 9002), "🌲": (9011, 9012, 9013)}
_TABLE: Final = {
    text: _FIRST_WORD + n for n, text in enumerate((*WORDS, *_ENDS, *(w[1:] for w in WORDS)))
}
_TEXTS: Final = {number: text for text, number in _TABLE.items()}
_PIECES: Final = re.compile(r" ?[a-z]+|\.\n|.", re.DOTALL)
_SENTENCE: Final = re.compile(r".*?[.!?…]+\s*|.+", re.DOTALL)


class FakeVocabulary:
    """The `Vocabulary` port: words are tokens, what is no word is spelled."""

    name = SERVED
    window = 1500
    cost = (1, 2)
    control_ids = frozenset((SYSTEM, USER, ASSISTANT, END, EOS))

    def encode(self, text: str) -> TokenIds:
        ids: list[int] = []
        for piece in _PIECES.findall(text):
            known = _TABLE.get(piece)
            if known is not None:
                ids.append(known)
            else:
                ids.extend(_FIRST_CHAR + ord(char) for char in piece)
        return tuple(ids)

    def encode_control(self, text: str) -> TokenIds:
        return tuple(_MARKS[mark] for mark in re.findall(r"<\w+>", text))

    def decode(self, ids: Sequence[int]) -> str:
        """The text; parts of a split character count as the whole one at its last part."""
        return "".join(map(_text_of, ids))

    def render(self, messages: Sequence[PromptMessage]) -> Sequence[Chunk]:
        chunks: list[Chunk] = []
        opening = ""
        for message in messages:
            chunks.append(Chunk("control", f"{opening}<{message.role}>"))
            chunks.append(Chunk("text", message.content))
            opening = "<end>"
        chunks.append(Chunk("control", f"{opening}<assistant>"))
        return tuple(chunks)


def _text_of(number: int) -> str:
    if number >= _FIRST_CHAR:
        return chr(number - _FIRST_CHAR)
    for char, parts in _SPLIT.items():
        if number in parts:
            return char if number == parts[-1] else ""
    return _TEXTS.get(number, "")


def split_prompt(prompt: TokenIds) -> tuple[TokenIds, TokenIds]:
    """The question (up to the mark where the assistant begins) and what was already said."""
    at = len(prompt) - 1
    while prompt[at] != ASSISTANT:
        at -= 1
    return prompt[: at + 1], prompt[at + 1 :]


@lru_cache(maxsize=4096)
def answer_to(question: TokenIds) -> tuple[Unit, ...]:
    """The whole answer: sentences of words, some with split characters, and now and then one
    that never ends (the sentence cap has to cut it)."""
    rng = random.Random(zlib.crc32(pack_ids(question)))
    units: list[Unit] = []
    for _ in range(rng.choice((1, 2, 3, 4, 6))):
        n_words = 60 if rng.random() < 0.03 else rng.randint(2, 9)
        for _ in range(n_words):
            word = rng.choice(WORDS)
            units.append(Unit(word, (_TABLE[word],)))
            if rng.random() < 0.05:
                char = rng.choice(tuple(_SPLIT))
                units.append(Unit(char, _SPLIT[char]))
        end = rng.choice(_ENDS)
        units.append(Unit(end, (_TABLE[end],)))
    return tuple(units)


def ids_of(units: Sequence[Unit]) -> TokenIds:
    return tuple(number for unit in units for number in unit.ids)


def undisturbed(question: TokenIds, max_tokens: int) -> tuple[str, TokenIds]:
    """Text and tokens of the answer when nothing goes wrong."""
    said: list[Unit] = []
    left = max_tokens
    for unit in answer_to(question):
        if len(unit.ids) > left:
            break
        said.append(unit)
        left -= len(unit.ids)
    return "".join(unit.text for unit in said), ids_of(said)


def split_sentences(text: str) -> Sequence[str]:
    """The `Split` of the sentence gate, in one expression."""
    return _SENTENCE.findall(text)
