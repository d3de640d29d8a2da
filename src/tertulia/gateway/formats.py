"""Reads one conversation of an export file: ours, ChatGPT's or Open WebUI's.

It trusts nothing about the file and never repeats its text in a flaw. What it makes is put in order
and checked by `core.transcripts`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tertulia.core.transcripts import Flaw, Node, Transcript
from tertulia.core.types import Failure, Finish, Reason, Status
from tertulia.gateway.jsonfields import (
    Unfit,
    as_dict,
    as_text,
    dict_of,
    flag_of,
    list_of,
    maybe_dict,
    moment_of,
    one_of,
    seconds_of,
    text_of,
    value_of,
    word_of,
)

FORMAT: Final = "tertulia-export"
VERSION: Final = 1

# ChatGPT's marks of citations, which its page replaces.
_CITATIONS: Final = re.compile("\ue200[^\ue200\ue201]*\ue201")
# What Open WebUI folds away and takes out of its own prompts again.
_DETAILS: Final = re.compile(
    r'<details[^<>]{0,200}\btype="(?:reasoning|tool_calls|code_interpreter)"[^<>]{0,2000}>'
)
_DETAILS_END: Final = "</details>"


def read_conversation(raw: bytes) -> tuple[str, Transcript | Flaw]:
    """The conversation's id in its file, if it can be told, and the conversation or its flaw."""
    try:
        value = value_of(raw)
    except Unfit as error:
        return "", error.flaw
    if not isinstance(value, dict):
        return "", _UNKNOWN
    reader = _reader_of(value)
    if reader is None:
        return "", _UNKNOWN
    try:
        found = reader(value, hashlib.sha256(raw).hexdigest())
    except Unfit as error:
        return _best_id(value), error.flaw
    return (found.id if isinstance(found, Transcript) else _best_id(value)), found


_Reader = Callable[[Mapping[str, Any], str], Transcript | Flaw]


def _reader_of(value: Mapping[str, Any]) -> _Reader | None:
    if value.get("format") == FORMAT:
        return _own
    if isinstance(value.get("mapping"), dict):
        return _chatgpt
    if isinstance(value.get("chat"), dict):
        return _open_webui
    return None


# Our own.


def _own(value: Mapping[str, Any], _fallback: str) -> Transcript | Flaw:
    if value.get("version") != VERSION:
        return Flaw("unknown_version", f"It is of another version than {VERSION}.")
    its = dict_of(value, "conversation")
    messages = list_of(value, "messages")
    return Transcript(
        source="tertulia",
        id=text_of(its, "id"),
        title=text_of(its, "title"),
        nodes=tuple(_own_node(as_dict(one, "messages")) for one in messages),
        created_at=moment_of(its, "createdAt"),
        updated_at=moment_of(its, "updatedAt"),
        pinned=flag_of(its, "pinned"),
        archived=flag_of(its, "archived"),
        model=word_of(its, "model"),
        head=word_of(its, "headMessageId"),
    )


def _own_node(one: Mapping[str, Any]) -> Node:
    role = text_of(one, "role")
    status = one_of(Status, one, "status") or Status.COMPLETED
    finish = one_of(Finish, one, "finish")
    if not status.is_final:  # it ran while it was exported: what was said is all there is
        status, finish = Status.STOPPED, Finish.STOPPED
    feedback = word_of(one, "feedback")
    return Node(
        id=text_of(one, "id"),
        parent_id=word_of(one, "parentId"),
        role="user" if role == "user" else "assistant" if role == "assistant" else None,
        content=text_of(one, "content"),
        created_at=moment_of(one, "createdAt"),
        model=word_of(one, "model"),
        requested=word_of(one, "requested"),
        reason=one_of(Reason, one, "reason"),
        status=status,
        finish=finish,
        notices=tuple(as_text(notice, "notices") for notice in list_of(one, "notices")),
        failure=_own_failure(one),
        feedback="up" if feedback == "up" else "down" if feedback == "down" else None,
        why=word_of(one, "feedbackReason") or "",
    )


def _own_failure(one: Mapping[str, Any]) -> Failure | None:
    if one.get("error") is None:
        return None
    error = dict_of(one, "error")
    return Failure(text_of(error, "code"), text_of(error, "message"), flag_of(error, "retryable"))


# ChatGPT's: `conversations.json` is a list of trees, each a map from ids to nodes.


def _chatgpt(value: Mapping[str, Any], fallback: str) -> Transcript:
    return Transcript(
        source="chatgpt",
        id=word_of(value, "conversation_id") or word_of(value, "id") or fallback,
        title=word_of(value, "title") or "",
        nodes=tuple(
            _chatgpt_node(name, as_dict(node, "mapping")) for name, node in value["mapping"].items()
        ),
        created_at=seconds_of(value.get("create_time")),
        updated_at=seconds_of(value.get("update_time")),
        pinned=value.get("is_starred") is True,
        archived=value.get("is_archived") is True,
        head=word_of(value, "current_node"),
    )


def _chatgpt_node(name: str, node: Mapping[str, Any]) -> Node:
    parent = word_of(node, "parent")
    said = node.get("message")
    if not isinstance(said, dict):
        return Node(name, parent, None)
    author, content, more = (maybe_dict(said, key) for key in ("author", "content", "metadata"))
    role = author.get("role")
    text = _CITATIONS.sub("", _chatgpt_text(content))
    is_hidden = (
        role not in ("user", "assistant")
        or more.get("is_visually_hidden_from_conversation") is True
        or said.get("recipient") not in (None, "all")
        or not text.strip()
    )
    if is_hidden:
        return Node(name, parent, None)
    created_at = seconds_of(said.get("create_time"))
    if role == "user":
        return Node(name, parent, "user", text, created_at)
    ended = maybe_dict(more, "finish_details").get("type")
    finish = _CHATGPT_FINISH.get(ended if isinstance(ended, str) else "", Finish.STOP)
    return Node(
        name,
        parent,
        "assistant",
        text,
        created_at,
        model=word_of(more, "model_slug"),
        status=Status.STOPPED if finish is Finish.STOPPED else Status.COMPLETED,
        finish=finish,
    )


_CHATGPT_FINISH: Final[Mapping[str, Finish]] = {
    "max_tokens": Finish.LENGTH,
    "interrupted": Finish.STOPPED,
}


def _chatgpt_text(content: Mapping[str, Any]) -> str:
    """What a reader saw; nothing for thoughts, tools' results and notes of the system."""
    kind = content.get("content_type")
    if kind == "code":
        text = content.get("text")
        return f"```\n{text}\n```" if isinstance(text, str) and text else ""
    if kind not in ("text", "multimodal_text"):
        return ""
    parts = content.get("parts")
    shown = [_chatgpt_part(part) for part in parts] if isinstance(parts, list) else []
    return "\n\n".join(part for part in shown if part)


def _chatgpt_part(part: object) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return ""
    text = part.get("text")
    if isinstance(text, str):
        return text
    kind = part.get("content_type")
    return "[image]" if kind == "image_asset_pointer" else ""


# Open WebUI's: a list of chats, each with a map from ids to messages and a linear copy beside it.


def _open_webui(value: Mapping[str, Any], fallback: str) -> Transcript:
    chat = dict_of(value, "chat")
    history = maybe_dict(chat, "history")
    messages = history.get("messages")
    if isinstance(messages, dict):
        nodes = tuple(_webui_node(name, as_dict(one, "messages")) for name, one in messages.items())
    else:
        nodes = _webui_line(list_of(chat, "messages"))
    return Transcript(
        source="open-webui",
        id=word_of(value, "id") or word_of(chat, "id") or fallback,
        title=word_of(value, "title") or word_of(chat, "title") or "",
        nodes=nodes,
        created_at=seconds_of(value.get("created_at") or chat.get("timestamp")),
        updated_at=seconds_of(value.get("updated_at")),
        pinned=value.get("pinned") is True,
        archived=value.get("archived") is True,
        head=word_of(history, "currentId"),
    )


def _webui_line(messages: Sequence[Any]) -> tuple[Node, ...]:
    """The messages of an old export, which has no tree."""
    found: list[Node] = []
    for n, one in enumerate(messages):
        known = as_dict(one, "messages")
        above = found[-1].id if found else None
        found.append(_webui_node(word_of(known, "id") or str(n), {**known, "parentId": above}))
    return tuple(found)


def _webui_node(name: str, one: Mapping[str, Any]) -> Node:
    parent, role = word_of(one, "parentId"), one.get("role")
    if role not in ("user", "assistant"):
        return Node(name, parent, None)
    content = one.get("content")
    text = _without_details(content) if isinstance(content, str) else ""
    created_at = seconds_of(one.get("timestamp"))
    if role == "user":
        return Node(name, parent, "user", text, created_at)
    has_failed = bool(one.get("error"))
    said = maybe_dict(one, "annotation")
    rating = said.get("rating")
    return Node(
        name,
        parent,
        "assistant",
        text,
        created_at,
        model=word_of(one, "model"),
        status=Status.FAILED if has_failed else Status.COMPLETED,
        finish=None if has_failed else Finish.STOP,
        failure=_WEBUI_FAILURE if has_failed else None,
        feedback="up" if rating == 1 else "down" if rating == -1 else None,
        why=word_of(said, "comment") or "",
    )


_WEBUI_FAILURE: Final = Failure("imported", "This reply had failed where it comes from.", False)


def _without_details(text: str) -> str:
    """The text without what was folded away; one pass, whatever is in it."""
    kept: list[str] = []
    at = 0
    while (begins := _DETAILS.search(text, at)) is not None:
        ends = text.find(_DETAILS_END, begins.end())
        if ends < 0:
            break
        kept.append(text[at : begins.start()])
        at = ends + len(_DETAILS_END)
    kept.append(text[at:])
    return "".join(kept).strip("\n") if at else text


def _best_id(value: Mapping[str, Any]) -> str:
    for where in (value, maybe_dict(value, "conversation"), maybe_dict(value, "chat")):
        for key in ("id", "conversation_id"):
            if isinstance(where.get(key), str):
                return str(where[key])
    return ""


_UNKNOWN: Final = Flaw(
    "unknown_format", "It is no conversation of an export that can be read here."
)
