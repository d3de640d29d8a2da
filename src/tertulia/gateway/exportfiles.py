"""The files of an export: what a conversation is called in an archive, as JSON and as Markdown.

The JSON is the API's own form with a head that names its version: it is what an import takes back
(`gateway/formats.py`). The Markdown is for people: the branch that was shown, and nothing else.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tertulia.core.turn import to_json
from tertulia.core.types import Conversation, Message, Status
from tertulia.gateway.conversations import conversation_json
from tertulia.gateway.formats import FORMAT, VERSION
from tertulia.gateway.moments import rfc3339

# With the date and the id a name stays under the 255 bytes that file systems take.
_SLUG_CHARS: Final = 40
# Markdown that would begin something other than a title.
_MARKUP: Final = re.compile(r"([\\`*_{}\[\]<>#|])")
_SPEAKERS: Final = {"user": "You", "assistant": "Assistant"}
_OTHERS_NOTE: Final = (
    "*Further messages of this conversation are on other branches; they are in the JSON file.*"
)


def file_stem(conversation: Conversation) -> str:
    """A file's name without its ending: date, words of the title, and the id, which makes it the
    only one. Letters and digits of any script alone come from the title."""
    title = unicodedata.normalize("NFC", conversation.title)[: 4 * _SLUG_CHARS].lower()
    words = "".join(letter if letter.isalnum() else " " for letter in title).split()
    slug = "-".join(words)[:_SLUG_CHARS].strip("-") or "conversation"
    return f"{rfc3339(conversation.created_at)[:10]}-{slug}-{conversation.id}"


def json_head(conversation: Conversation) -> bytes:
    """The beginning of a conversation's JSON file, up to its first message."""
    its = {
        **conversation_json(conversation),
        "model": conversation.model,
        "promptVersion": conversation.prompt_version,
        "headMessageId": conversation.head_message_id,
    }
    del its["activeMessageId"]
    head = to_json({"format": FORMAT, "version": VERSION, "conversation": its})
    return head[:-1] + b',"messages":[\n'


def json_messages(messages: Sequence[Mapping[str, Any]]) -> bytes:
    """Some messages of a conversation's JSON file."""
    return JSON_COMMA.encode().join(map(to_json, messages))


# Between two messages, and behind the last.
JSON_COMMA: Final = ",\n"
JSON_END: Final = b"\n]}\n"


def markdown_head(conversation: Conversation) -> bytes:
    """The beginning of a conversation's Markdown file."""
    title = " ".join(conversation.title.split()) or "Conversation"
    plain = _MARKUP.sub(r"\\\1", title)
    lines = (
        f"# {plain}",
        "",
        f"{rfc3339(conversation.created_at)} – {rfc3339(conversation.updated_at)}",
        "",
    )
    return "\n".join(lines).encode()


def markdown_message(message: Message) -> bytes:
    """One message, its text as it is: it is Markdown already."""
    who = _SPEAKERS.get(message.role, message.role)
    model = f" ({message.model})" if message.model else ""
    status = "" if message.status is Status.COMPLETED else f" – {message.status}"
    lines = (f"\n## {who}{model}{status}", "", message.content.strip() or "*(empty)*", "")
    return "\n".join(lines).encode()


def markdown_end(*, others: int) -> bytes:
    """The end of a conversation's Markdown file, with so many messages on other branches."""
    return f"\n---\n\n{_OTHERS_NOTE}\n".encode() if others else b""
