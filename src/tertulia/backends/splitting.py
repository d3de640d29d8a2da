"""Cuts text into sentences and loses no character of it, whatever the text.

It must never let the library's panics out: they are no `Exception` and would end the worker.
"""

from __future__ import annotations

import re

import sentencex

# After an initial, wide spaces make sentencex 1.0.32 cut inside of a character and panic. Halves of
# surrogate pairs, which it can't take at all, are treated like them.
_TROUBLE = re.compile("[\ud800-\udfff\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")


def split_sentences(text: str) -> list[str]:
    """The sentences of a text; joined they are the text again. Unsplittable text is one."""
    # Character for character as long as the text, so that its cuts are those of the text.
    plain = text if text.isascii() else _TROUBLE.sub(" ", text)
    sentences: list[str] = []
    start = 0
    for sentence in _segments(plain):
        sentences.append(text[start : start + len(sentence)])
        start += len(sentence)
    # Of tens of thousands of line ends in a row sentencex swallows a part.
    if start < len(text):
        sentences.append(text[start:])
    return sentences


def _segments(text: str) -> list[str]:
    try:
        return list(sentencex.segment("en", text))
    # A panic has no class that could be imported.
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return [text]
