"""Ready replies to the commonest questions: the last thing there is instead of a refusal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

# Who answers, and the notice of a reply that nobody computed.
CANNED: Final = "canned"
# A question that many people ask in the same words is short; a longer text is not even looked at.
QUESTION_CHARS: Final = 200


def ready_replies(pairs: Iterable[tuple[Sequence[str], str]]) -> dict[str, str]:
    """The reply to each question in its plain form; ValueError for a question that can't be one, or
    that has two replies."""
    ready: dict[str, str] = {}
    for questions, reply in pairs:
        for question in questions:
            plain = plainly(question)
            if not plain:
                shown = question[:40]
                raise ValueError(
                    f"the question {shown!r} has no words, or over {QUESTION_CHARS} characters"
                )
            if ready.setdefault(plain, reply) != reply:
                raise ValueError(f"the question {question!r} has two replies")
    return ready


def plainly(question: str) -> str:
    """A question as it is compared: letters and digits in any case, one space between words, and
    none of the marks around them. Empty for one that is too long to be common."""
    if len(question) > QUESTION_CHARS:
        return ""
    plain = unicodedata.normalize("NFC", question).casefold()
    return " ".join("".join(c if c.isalnum() else " " for c in plain).split())
