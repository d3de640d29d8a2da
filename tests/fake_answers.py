"""What the fake replica says: an answer that is a function of the prompt's tokens, for tests only.

So a reply that was broken off and continued anywhere can be compared with an undisturbed one.
"""

from __future__ import annotations

import random
import re
import zlib
from typing import Final

from tertulia.core.turn import pack_ids
from tertulia.core.types import PromptMessage, TokenIds, Unit
from tertulia.ports import Vocabulary

_SENTENCES: Final = (
    "The sea is never quite still.",
    "Ein Töpfer formt den Ton, bevor er ihn brennt.",
    "Wait, is that so?",
    "雨が降っても、森は静かです。",
    "Three things matter: the wind, the tide and the keel 🌊.",
    "Le café refroidit près de la fenêtre…",
    "Nobody counted the swallows 🐦🐦 on the wire!",
    "A list:\n- one\n- two\n",
    "Привет, мир.",
    "Families 👩‍👩‍👧 walk along the quay.",
    "It costs 3.50 € at the harbour.",
    "That was all.",
)
# How many sentences the answer to a question with these words has; the last ones count.
_LENGTHS: Final = {"at length": (24, 24), "in a word": (1, 1)}
_USUAL: Final = (4, 9)
_LENGTH: Final = re.compile("|".join(_LENGTHS))
# A test may put such a mark into a question, one for each person or turn.
_MARK: Final = re.compile("mark-[0-9a-f]{12}")


def answer(vocabulary: Vocabulary, question: TokenIds, mood: int = 0) -> tuple[Unit, ...]:
    """The undisturbed answer to a prompt, one unit a token; a character's text comes whole, with
    its last token. Tests compare what a client shows with the joined texts of this. Each mood has
    another one."""
    rng = random.Random(zlib.crc32(pack_ids(question)) + mood)
    asked = vocabulary.decode(question)
    least, most = _LENGTHS[lengths[-1]] if (lengths := _LENGTH.findall(asked)) else _USUAL
    text = " ".join(rng.choice(_SENTENCES) for _ in range(rng.randint(least, most)))
    # Said again, so that a reader who is shown another's answer can tell.
    marks = _MARK.findall(asked)
    if marks:
        text = f"{text} You said {marks[-1]}."
    ids = vocabulary.encode(text)
    units, begin = [], 0
    for n, number in enumerate(ids, 1):
        said = vocabulary.decode(ids[begin:n])
        # A token may end within a character: its text comes with the next one.
        if said.endswith("\ufffd") and n < len(ids):
            said = ""
        else:
            begin = n
        units.append(Unit(said, (number,)))
    assert "".join(unit.text for unit in units) == text
    return tuple(units)


def split_prompt(vocabulary: Vocabulary, prompt: TokenIds) -> tuple[TokenIds, TokenIds]:
    """The question up to where the assistant begins, and what was said already."""
    opening = _opening(vocabulary)
    at = len(prompt) - len(opening)
    while at >= 0 and prompt[at : at + len(opening)] != opening:
        at -= 1
    if at < 0:
        raise ValueError("the prompt does not open an answer")
    return prompt[: at + len(opening)], prompt[at + len(opening) :]


def _opening(vocabulary: Vocabulary) -> TokenIds:
    """What the template ends with, from its last control token on."""
    last = vocabulary.render([PromptMessage("system", ""), PromptMessage("user", "")])[-1]
    ids = vocabulary.encode_control(last.text)
    first = max(n for n, number in enumerate(ids) if number in vocabulary.control_ids)
    return ids[first:]
