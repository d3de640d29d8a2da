"""Checks text against a short list of rules: a floor that catches the plainly harmful, no more.

It must stay linear in the length of the text, and it never says that a text is harmless.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tertulia.core.types import Verdict

RULES_FILE = Path(__file__).with_name("checks.toml")

# A rule's terms may stand this many words apart: a long sentence, or two short ones.
_SPAN = 30
# So much of what was released before is looked at again: about as long as the span.
_TAIL_CHARS = 240

# Format characters and combining marks: invisible, or a cheap disguise. Each is dropped by itself,
# for normalising a whole text can make it many times as long.
_INVISIBLE = re.compile(
    "[\u00ad\u0300-\u036f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f"
    "\ufeff\U000e0000-\U000e007f]"
)
_WORD = re.compile(r"[^\W_]+")
# The same for ASCII: what is no letter or digit becomes a space.
_ASCII_WORDS = bytes(
    ord(chr(n).lower()) if n < 128 and chr(n).isalnum() else ord(" ") for n in range(256)
)

_CLEAN = Verdict(flagged=False)


@dataclass(frozen=True, slots=True)
class _Rule:
    """Met when every group was seen within the span, the first two `close` to each other."""

    name: str
    verdict: Verdict
    groups: tuple[str, ...]
    unless: frozenset[str]
    close: int


@dataclass(frozen=True, slots=True)
class _Term:
    """The words after a term's first one, the groups it is in and the rules that ask for it."""

    rest: tuple[str, ...]
    groups: frozenset[str]
    rules: tuple[_Rule, ...]


class RulesChecks:
    """The `Checks` of an installation without a classifier; knows nothing but its file."""

    def __init__(self, rules_file: Path = RULES_FILE) -> None:
        document = tomllib.loads(rules_file.read_text(encoding="utf-8"))
        rules = _rules(document)
        self._terms = _terms(document["words"], rules)
        rarest = {rule.groups[0] for rule in rules}
        self._rare = frozenset(
            first
            for first, terms in self._terms.items()
            if any(not term.groups.isdisjoint(rarest) for term in terms)
        )

    async def check_input(self, text: str) -> Verdict:
        """Looks at all that a person wrote."""
        return self._judge("", text)

    async def check_output(self, before: str, sentence: str) -> Verdict:
        """Looks at a sentence, read on from the end of what was released before it."""
        tail = before[-_TAIL_CHARS:]
        if len(tail) < len(before):
            tail = tail.partition(" ")[2]  # half a word might be another word
        return self._judge(tail, sentence)

    def _judge(self, tail: str, text: str) -> Verdict:
        words = _words(tail + text)
        if self._rare.isdisjoint(words):
            return _CLEAN
        old = _words(tail)
        # The word in which the tail ends is new if it goes on in the text.
        first_new = len(old) - 1 if old and words[len(old) - 1] != old[-1] else len(old)
        seen: dict[str, int] = {}
        excused_until: dict[str, int] = {}
        for at, word in enumerate(words):
            for term in self._terms.get(word, ()):
                last = at + len(term.rest)
                if term.rest and tuple(words[at + 1 : last + 1]) != term.rest:
                    continue
                seen.update(dict.fromkeys(term.groups, last))
                if last < first_new:
                    continue
                for rule in term.rules:
                    if not _met(rule, seen, last) or last <= excused_until.get(rule.name, -1):
                        continue
                    excuse = self._excuse(rule, last, words)
                    if excuse is None:
                        return rule.verdict
                    # It stays near for a while: looking again each time would not be linear.
                    excused_until[rule.name] = excuse + _SPAN
        return _CLEAN

    def _excuse(self, rule: _Rule, last: int, words: Sequence[str]) -> int | None:
        """Where the last term of `unless` near `last` begins."""
        for at in reversed(range(max(0, last - _SPAN), min(len(words), last + _SPAN))):
            for term in self._terms.get(words[at], ()):
                if not term.groups.isdisjoint(rule.unless) and (
                    tuple(words[at + 1 : at + 1 + len(term.rest)]) == term.rest
                ):
                    return at
        return None


def _met(rule: _Rule, seen: Mapping[str, int], last: int) -> bool:
    places = [seen.get(group, -_SPAN - 1) for group in rule.groups]
    if min(places) < last - _SPAN:
        return False
    return len(places) == 1 or abs(places[0] - places[1]) <= rule.close


def _words(text: str) -> list[str]:
    if text.isascii():
        # A table cuts them in a fifth of the time.
        return text.encode().translate(_ASCII_WORDS).decode().split()
    return _WORD.findall(_INVISIBLE.sub("", text.casefold()))


def _rules(document: Mapping[str, Any]) -> tuple[_Rule, ...]:
    known = frozenset(document["words"])
    rules: list[_Rule] = []
    for category in document["category"]:
        verdict = Verdict(flagged=True, category=category["name"], text=category["text"])
        for rule in category["rules"]:
            groups, unless = tuple(rule["all"]), frozenset(rule.get("unless", ()))
            if missing := {*groups, *unless} - known:
                raise ValueError(f"the rules of {category['name']} name no list: {sorted(missing)}")
            name = "+".join(groups)
            rules.append(_Rule(name, verdict, groups, unless, rule.get("close", _SPAN)))
    return tuple(rules)


def _terms(
    words: Mapping[str, Sequence[str]], rules: Sequence[_Rule]
) -> dict[str, tuple[_Term, ...]]:
    """All terms, by their first word."""
    groups_of: dict[tuple[str, ...], set[str]] = {}
    for group, terms in words.items():
        for term in terms:
            split = tuple(_words(term))
            if not split or " ".join(split) != term:
                raise ValueError(f"{term!r} in {group} is not plain lower-case words")
            groups_of.setdefault(split, set()).add(group)
    found: dict[str, list[_Term]] = {}
    for (first, *rest), groups in groups_of.items():
        asking = tuple(rule for rule in rules if not groups.isdisjoint(rule.groups))
        found.setdefault(first, []).append(_Term(tuple(rest), frozenset(groups), asking))
    return {first: tuple(terms) for first, terms in found.items()}
