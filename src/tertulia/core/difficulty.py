"""How hard a question looks, from 0 to `HARDEST`: a logistic score over a few features of its text.

It must stay cheap whatever is sent: it reads the beginning and the end of a long text, and every
pattern is linear. The weights are set by hand and kept honest by a labelled list in the tests; they
know what usually makes a small model's answer the worse one, and nothing of any model.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from tertulia.core.lexicon import CONDITIONS, DEMANDING, PLAIN, STAKES, THINKING, Lexicon

HARDEST: Final = 999
# What is graded below counts as easy: of the questions of our own list one in twenty of either kind
# falls on the wrong side.
SMALL_BELOW: Final = 400

# What is asked stands at the beginning or at the end; a pasted text stands in between. So many
# characters take a few milliseconds, whatever they are.
_HEAD_CHARS: Final = 2_000
_TAIL_CHARS: Final = 1_000

_WORD: Final = re.compile(r"[^\W\d_]+")
# Scripts in which about two characters make a word and no space says where it ends.
_DENSE: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_NUMBER: Final = re.compile(r"\d[\d.,]{0,20}")
_QUESTION: Final = re.compile("[?？؟]")
_SENTENCE: Final = re.compile(r"(?<=[^\s.!?。！？।؟]{2})[.!?。！？।؟]")
_ITEM: Final = re.compile(r"^[ \t]{0,8}(?:[-*•]|\d{1,2}[.)])[ \t]", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Sign:
    """A pattern that can only be where one of some characters is: most texts have none of them."""

    needs: str  # nothing: it may be anywhere
    pattern: re.Pattern[str]

    def is_in(self, text: str) -> bool:
        may_be = not self.needs or any(char in text for char in self.needs)
        return may_be and self.pattern.search(text) is not None


def _signs(*signs: tuple[str, str]) -> tuple[_Sign, ...]:
    return tuple(_Sign(needs, re.compile(pattern, re.MULTILINE)) for needs, pattern in signs)


# Each is a sign of code; one alone may be chance. Every repetition has a bound, so that no text
# makes a search quadratic.
_FENCE: Final = re.compile(r"```|~~~")
_STATEMENT: Final = (
    r"^[ \t]{0,40}(?:def|class|import|from|function|const|let|var|public|private|static|#include|fn"
    r"|func|package|return|elif|else:|SELECT|INSERT|UPDATE|CREATE|try:|except|async)\b.{0,80}"
    r"[(){}:;=*<]"
)
_CODE: Final = _signs(
    ("(){}:;=*<", _STATEMENT),
    (";{}", r"[;{}][ \t]{0,8}$"),
    (">:=&|/", r"=>|::|==|!=|&&|\|\||\+=|</\w|->"),
    ("(", r"\b[A-Za-z_]\w{0,40}\(\w{0,40}[,)]"),
    ("", r"\bTraceback\b|(?<=\w)(?:Error|Exception)\b|\bsegfault\b|\bstack trace\b"),
    (".", r"\b\w{1,40}+\.(?:py|js|ts|java|cpp|go|rs|rb|sh|sql|html|css|json|ya?ml|toml)\b"),
)
_MATHS: Final = _signs(
    ("\\", r"\\(?:frac|sum|int|sqrt|lim|begin|mathbb|mathbf|partial|infty|cdot|leq|geq)\b"),
    ("", "[∑∫√∂∇∞≤≥≠∈∀∃∏∪∩≡]"),
    ("^", r"\b\w{1,8} ?\^ ?[\w({]"),
    ("=+*/<>-", r"\b\d{0,6}[a-z][²³]?(?:\([a-z]\))? ?[=+*/<>-] ?\d{0,6}[a-z\d]\b"),
    ("(", r"\b[a-zO]\([a-z][^)\n]{0,20}\)"),
)

_LEXICON: Final = Lexicon(DEMANDING, THINKING, PLAIN, STAKES, CONDITIONS)

# Beyond it the exponential says nothing more, and a float ends at 709.
_STEEPEST: Final = 30.0


@dataclass(frozen=True, slots=True)
class Question:
    """The newest message of a user, and how it is asked.

    `tokens` are the message's own, `prompt_tokens` those of the whole prompt with it.
    """

    text: str
    tokens: int
    prompt_tokens: int
    asked: Literal["first", "again"] = "first"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was read of a question, once for all features."""

    question: Question
    plain: str  # as it was written
    n_words: float  # of the whole text, estimated from the part that was read
    demanding: int  # so many terms of each kind
    thinking: int
    plainness: int
    stakes: int
    conditions: int


@dataclass(frozen=True, slots=True)
class Feature:
    """One measure of a question; `why` says what its weight stands for."""

    name: str
    weight: float
    why: str
    measure: Callable[[_Seen], float]


# The sum at which a question of no words stands: most questions are easy.
_BASE: Final = -1.6

FEATURES: Final = (
    Feature(
        "length",
        0.7,
        "long questions have more in them; doubling one counts about once",
        lambda seen: math.log2(1 + seen.n_words / 10),
    ),
    Feature(
        "code",
        2.0,
        "code must run: one wrong sign makes an answer useless",
        lambda seen: _code(seen),
    ),
    Feature(
        "maths",
        1.6,
        "formulas need exact steps, each of which can go wrong",
        lambda seen: _maths(seen),
    ),
    Feature(
        "demanding",
        2.0,
        "words for work that small models often get wrong: proofs, algorithms, designs, contracts",
        lambda seen: min(3, seen.demanding),
    ),
    Feature(
        "thinking",
        0.9,
        "words that ask for reasons, comparisons or judgement instead of a fact",
        lambda seen: min(3, seen.thinking),
    ),
    Feature(
        "plain",
        -1.5,
        "greetings, translations, rewording and lookups, which a small model does as well",
        lambda seen: min(2, seen.plainness),
    ),
    Feature(
        "stakes",
        0.8,
        "a wrong answer about law, health or money does harm",
        lambda seen: min(2, seen.stakes),
    ),
    Feature(
        "conditions",
        0.45,
        "each condition that an answer must keep to is one more to forget",
        lambda seen: min(4, seen.conditions + _items(seen)),
    ),
    Feature(
        "numbers",
        0.35,
        "several numbers make a calculation of it; one or two are dates and amounts",
        lambda seen: min(4, max(0, len(_NUMBER.findall(seen.plain)) - 2)),
    ),
    Feature(
        "questions",
        0.4,
        "several questions in one want an answer in parts",
        lambda seen: min(3, max(0, len(_QUESTION.findall(seen.plain)) - 1)),
    ),
    Feature(
        "sentences",
        0.35,
        "who tells a story before the question wants an answer that fits it",
        lambda seen: min(4, max(0, len(_SENTENCE.findall(seen.plain)) - 1)),
    ),
    Feature(
        "history",
        0.3,
        "small models lose the thread of a long conversation, and their windows are short",
        lambda seen: _history(seen),
    ),
    Feature(
        "again",
        4.5,  # more than all that is plain takes away: who asks again always gets the large model
        "an answer that is asked for once more was not good enough the first time",
        lambda seen: float(seen.question.asked == "again"),
    ),
)


def difficulty(question: Question) -> int:
    """0 (anybody can answer it) to HARDEST; the same question always gets the same."""
    total = _BASE + sum(contributions(question).values())
    steep = max(-_STEEPEST, min(_STEEPEST, total))
    return min(HARDEST, int((HARDEST + 1) / (1 + math.exp(-steep))))


def contributions(question: Question) -> Mapping[str, float]:
    """What each feature adds to the logit of the score: why a question counts as hard."""
    seen = _see(question)
    return {feature.name: feature.weight * feature.measure(seen) for feature in FEATURES}


def crude_difficulty(question: Question, *, easy_tokens: int) -> int:
    """The rule for when nothing better answers: short and without code is easy, all else is not."""
    is_easy = question.tokens < easy_tokens and not has_code(question.text)
    return 0 if is_easy else HARDEST


def has_code(text: str) -> bool:
    """Whether there is code in what is read of a text: a fence, or two signs of it."""
    return _signs_of_code(_read(text)) > 1


def _read(text: str) -> str:
    if len(text) <= _HEAD_CHARS + _TAIL_CHARS:
        return text
    return f"{text[:_HEAD_CHARS]}\n{text[-_TAIL_CHARS:]}"


def _see(question: Question) -> _Seen:
    read = _read(question.text)
    plain = unicodedata.normalize("NFC", read)
    folded = plain.casefold()
    found = _WORD.findall(folded)
    dense = len(_DENSE.findall(folded))
    # A row of dense characters is one word to the pattern: what it holds is counted beside it.
    n_words = (len(found) + dense / 2) * len(question.text) / max(1, len(read))
    counts = _LEXICON.counts(frozenset(found), folded)
    return _Seen(question, plain, n_words, *counts)


def _signs_of_code(read: str) -> int:
    if _FENCE.search(read):
        return 2
    return sum(sign.is_in(read) for sign in _CODE)


def _code(seen: _Seen) -> float:
    return min(2, _signs_of_code(seen.plain)) / 2


def _maths(seen: _Seen) -> float:
    return min(2, sum(sign.is_in(seen.plain) for sign in _MATHS)) / 2


def _items(seen: _Seen) -> int:
    return len(_ITEM.findall(seen.plain))


def _history(seen: _Seen) -> float:
    before = max(0, seen.question.prompt_tokens - seen.question.tokens)
    return math.log2(1 + before / 1_000)
