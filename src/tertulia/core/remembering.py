"""What a model is asked for behind a conversation's back: a title, and summaries of what was cut.

Values and decisions only. The words that ask are ours and have a version; what people said is data
beside them, and whatever comes back is cleaned and bounded here before anybody sees it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tertulia.core.choice import SMALL
from tertulia.core.prompt import Exchange
from tertulia.core.types import ModelState, PromptMessage

TaskKind = Literal["title", "summary"]

# A task that was begun so often and never finished is given up: some texts no model can summarise.
TRIES: Final = 3
# After a failure it waits so long, then twice as long: replicas that went come back in minutes.
RETRY_S: Final = 20.0

# A title of six words; models that have more to say are cut off in their last word.
TITLE_TOKENS: Final = 12
TITLE_CHARS: Final = 60
# Below this a summary says nothing: windows so small do without.
LEAST_SUMMARY_TOKENS: Final = 32
# Another model's tokenizer may need more tokens for the same words: so much of the room is asked
# for, in quarters.
_ASKED_QUARTERS: Final = 3

# What is read at once: small models lose the thread of longer talks.
PIECE_TOKENS: Final = 4_000
# Twice what half of the largest plan's window holds. Of more (a long talk that was imported) the
# newest count.
PIECES: Final = 8

# Changed whenever the words below change, or what is written beside the model's: a stored summary
# names what it was made with.
VERSION: Final = "2"
_TITLE_REQUEST: Final = (
    "Write a title for this conversation: at most six words, in its language. "
    "Answer with the title alone."
)
# Of "this conversation" and "the user": asked for what "we have talked about", a model of half a
# billion parameters goes on talking, says hello or apologises.
_SUMMARY_REQUEST: Final = (
    "Please write a summary of this conversation in at most {words} words, in its language. First "
    "what the user told: every name, number, code word, date and wish as it was said. Then the "
    "topics, and what is still open. Answer with the summary alone."
)
# Of running text; a token of blanks or of a line drawn with dashes may have more.
_MOST_CHARS_A_TOKEN: Final = 12
_SAFE_SIXTEENTHS: Final = 15
# Between what is kept of the beginning and of the end of a text that is too long.
_GAP: Final = " … "

_SENTENCE_END: Final = re.compile(r"[.!?…。！？؟।][\"'”’)\]]*(?=\s|$)|\n")
_TITLE_MARKS: Final = " \t\"'`*_#“”‘’«»„:-–—.…"
_TITLE_LABEL: Final = re.compile(r"^\W*title\W*:\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Task:
    """Something to be made of a conversation when nobody else needs the models; it is no turn.

    `upto` is the last message that a summary covers, which names its branch too; nothing for a
    title. `room_tokens` bounds what is made. Every claim is a try under the next epoch.
    """

    owner: str
    conversation_id: str
    kind: TaskKind
    upto: str
    room_tokens: int
    tries: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Title:
    """A title that a model made."""

    text: str


@dataclass(frozen=True, slots=True)
class Summary:
    """What a conversation came to up to the message `upto`, on the branch that leads there.

    `tokens` were counted by `tokenizer`; `version` names the words that asked for it, and
    `previous_id` the summary that it continues.
    """

    id: str
    upto: str
    previous_id: str | None
    text: str
    tokens: int
    tokenizer: str
    model: str
    version: str


Made = Title | Summary


def scribe_of(models: Sequence[ModelState], own: str | None) -> ModelState | None:
    """Who is asked: the conversation's own model, whose cache has read what is to be summarised,
    while it has room; else the small one; else any that can answer."""
    ready = [model for model in models if model.state == "ready"]
    at_home = [model for model in ready if model.served == own and model.room > 0]
    small = [model for model in ready if model.name == SMALL]
    return next(iter((*at_home, *small, *ready)), None)


def retry_after_s(task: Task) -> float | None:
    """When a task that failed is tried again; None when it is given up."""
    return None if task.tries >= TRIES else RETRY_S * 2 ** (task.tries - 1)


def summary_id(upto: str, text: str) -> str:
    """By what a summary is known: two of one name say the same."""
    return "s_" + hashlib.sha256(f"{upto}\0{text}".encode()).hexdigest()[:26]


def covered_ids(exchanges: Sequence[Exchange]) -> tuple[str, ...]:
    """The messages at which a summary of these exchanges, or of the first of them, may end."""
    return tuple(one.reply_id for one in exchanges if one.reply_id is not None)


def title_request() -> PromptMessage:
    """The message that asks for a title, after the first exchange."""
    return PromptMessage("user", _TITLE_REQUEST)


def summary_request(answer_tokens: int) -> PromptMessage:
    """The message that asks for a summary, after what is to be summarised."""
    # Three words take four tokens, and models don't count well.
    return PromptMessage("user", _SUMMARY_REQUEST.format(words=max(20, answer_tokens // 2)))


def asked_tokens(room_tokens: int) -> int:
    """How long a summary may be that has to fit into a room, whoever's tokenizer counts there."""
    return room_tokens * _ASKED_QUARTERS // 4


def pieces_of(
    exchanges: Sequence[Exchange], *, room_tokens: int
) -> tuple[tuple[Exchange, ...], ...]:
    """What is read at once, oldest first. An exchange that is too long by itself stands alone."""
    pieces: list[list[Exchange]] = []
    left = 0
    for exchange in exchanges:
        if not pieces or exchange.tokens > left:
            pieces.append([])
            left = room_tokens
        pieces[-1].append(exchange)
        left -= exchange.tokens
    return tuple(map(tuple, pieces[-PIECES:]))


def shortened_to(text: str, tokens: int, *, count: Callable[[str], int]) -> str:
    """The text, or its beginning and its end where it has more than so many tokens.

    Counting is dear: what is far too long is cut to some letters a token before it is counted, and
    after a count that was too high a little more is cut than that says.
    """
    chars = min(len(text), max(0, tokens) * _MOST_CHARS_A_TOKEN)
    kept = text
    while chars:
        if chars < len(text):
            kept = text[: chars - chars // 2] + _GAP + text[len(text) - chars // 2 :]
        counted = count(kept)
        if counted <= tokens:
            return kept
        chars = min(chars - 1, chars * tokens * _SAFE_SIXTEENTHS // (counted * 16))
    return ""


def clean_title(said: str, *, is_whole: bool) -> str:
    """One line without quotes or marks, of whole words; empty if nothing is left."""
    line = next((one for one in said.splitlines() if one.strip(_TITLE_MARKS)), "")
    line = " ".join(_TITLE_LABEL.sub("", line).split())
    was_cut = not is_whole and said.count("\n") == 0
    if len(line) > TITLE_CHARS:
        line, was_cut = line[:TITLE_CHARS], line[TITLE_CHARS] != " "
    if was_cut:
        line = line.rpartition(" ")[0] or line
    return line.strip(_TITLE_MARKS)


def clean_summary(said: str, *, is_whole: bool) -> str:
    """The text, up to its last whole sentence if it was cut off."""
    said = said.strip()
    if is_whole:
        return said
    ends = [found.end() for found in _SENTENCE_END.finditer(said)]
    return said[: ends[-1]].strip() if ends else said
