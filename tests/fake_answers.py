"""What the fake replica says: an answer that is a function of the prompt's tokens, for tests only.

So a reply that was broken off and continued anywhere can be compared with an undisturbed one.
"""

from __future__ import annotations

import random
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


def answer(vocabulary: Vocabulary, question: TokenIds) -> tuple[Unit, ...]:
    """The undisturbed answer to a prompt, one unit a token; a character's text comes whole, with
    its last token. Tests compare what a client shows with the joined texts of this."""
    rng = random.Random(zlib.crc32(pack_ids(question)))
    text = " ".join(rng.choice(_SENTENCES) for _ in range(rng.randint(4, 9)))
    ids = vocabulary.encode(text)
    units, shown = [], ""
    for n, number in enumerate(ids, 1):
        whole = text if n == len(ids) else vocabulary.decode(ids[:n]).rstrip("\ufffd")
        units.append(Unit(whole[len(shown) :], (number,)))
        shown = whole
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
