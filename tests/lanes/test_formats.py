"""What becomes of the odd things in exports of other programs, and of broken ones of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tertulia.core.transcripts import Flaw, Transcript
from tertulia.core.types import Finish, Status
from tertulia.gateway.formats import read_conversation
from tests.lanes.moving_rig import chatgpt, open_webui
from tests.lanes.test_moving_properties import OWN


def read(value: Any) -> Transcript:
    found = read_conversation(json.dumps(value).encode())[1]
    assert isinstance(found, Transcript), found
    return found


def flaw_of(value: Any) -> Flaw:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    found = read_conversation(raw)[1]
    assert isinstance(found, Flaw), found
    return found


def said(content: Any, role: str = "assistant", **more: Any) -> dict[str, Any]:
    """A conversation of ChatGPT's with one message."""
    message = {"author": {"role": role}, "content": content, **more}
    return chatgpt(mapping={"one": {"message": message, "parent": None}})


def text_of(value: Any) -> str | None:
    """The text of its only message; None if it is none of ours."""
    (node,) = read(value).nodes
    return node.content if node.role is not None else None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (said({"content_type": "text", "parts": ["One", "Two"]}), "One\n\nTwo"),
        (said({"content_type": "text", "parts": [""]}), None),
        (said({"content_type": "text", "parts": None}), None),
        (said({"content_type": "text"}), None),
        (said(None), None),
        (said({"content_type": "code", "text": "print(1)"}), "```\nprint(1)\n```"),
        (said({"content_type": "code", "text": "x"}, recipient="python"), None),
        (said({"content_type": "thoughts", "thoughts": []}), None),
        (said({"content_type": "reasoning_recap", "content": "x"}), None),
        (said({"content_type": "execution_output", "text": "1"}, "tool"), None),
        (said({"content_type": "text", "parts": ["Hidden"]}, "system"), None),
        (
            said(
                {"content_type": "text", "parts": ["Hidden"]},
                "user",
                metadata={"is_visually_hidden_from_conversation": True},
            ),
            None,
        ),
        (
            said(
                {
                    "content_type": "multimodal_text",
                    "parts": [
                        {"content_type": "image_asset_pointer", "asset_pointer": "file://1"},
                        {"content_type": "audio_transcription", "text": "Spoken"},
                        {"content_type": "audio_asset_pointer"},
                        7,
                        "Typed",
                    ],
                },
                "user",
            ),
            "[image]\n\nSpoken\n\nTyped",
        ),
        (
            said({"content_type": "text", "parts": ["So\ue200cite\ue202turn0\ue201."]}),
            "So.",
        ),
    ],
)
def test_of_chatgpts_messages_what_a_reader_saw_is_kept(value: Any, text: str | None) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize(
    ("kind", "finish", "status"),
    [
        ("stop", Finish.STOP, Status.COMPLETED),
        ("max_tokens", Finish.LENGTH, Status.COMPLETED),
        ("interrupted", Finish.STOPPED, Status.STOPPED),
        (None, Finish.STOP, Status.COMPLETED),
    ],
)
def test_how_a_reply_of_chatgpts_ended(kind: str | None, finish: Finish, status: Status) -> None:
    details = {"finish_details": {"type": kind}}
    value = said({"content_type": "text", "parts": ["So."]}, metadata=details)
    (node,) = read(value).nodes
    assert (node.finish, node.status) == (finish, status)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (1_700_000_000, 1_700_000_000.0),
        (1_700_000_000.25, 1_700_000_000.25),
        (1_700_000_000_250, 1_700_000_000.25),
        (1_700_000_000_250_000, 1_700_000_000.25),
        (1_700_000_000_250_000_000, 1_700_000_000.25),
        (None, 0.0),
        (True, 0.0),
        ("1700000000", 0.0),
        (-5, 0.0),
        (10**40, 0.0),
    ],
)
def test_times_are_read_in_whatever_unit(given: Any, seconds: float) -> None:
    assert read(chatgpt(create_time=given)).created_at == pytest.approx(seconds, abs=1e-6)
    assert read(open_webui(updated_at=given)).updated_at == pytest.approx(seconds, abs=1e-6)


def test_a_conversation_without_an_id_has_one_that_stays_the_same() -> None:
    value = chatgpt(id=None, conversation_id=None)
    assert read(value).id == read(value).id
    assert read(value).id != read({**value, "title": "Another"}).id


def test_an_old_chat_of_open_webui_has_no_tree() -> None:
    value = open_webui()
    value["chat"]["messages"] = [
        {"role": "system", "content": "Be brief"},
        {"id": "x", "role": "user", "content": "Why?"},
        {"role": "assistant", "content": "So."},
    ]
    del value["chat"]["history"]
    found = read(value)
    assert [(one.parent_id, one.role, one.content) for one in found.nodes] == [
        (None, None, ""),
        ("0", "user", "Why?"),
        ("x", "assistant", "So."),
    ]
    assert found.head is None


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ('<details type="reasoning" done="true">\n<summary>x</summary>\n</details>\nSo.', "So."),
        ('A<details type="tool_calls">x</details>B', "AB"),
        ("<details>Mine</details>", "<details>Mine</details>"),
        ('<details type="reasoning">never ends', '<details type="reasoning">never ends'),
        (["a list"], ""),
        (None, ""),
    ],
)  # fmt: skip
def test_what_open_webui_folds_away_is_left_out(content: Any, text: str) -> None:
    value = open_webui()
    value["chat"]["history"]["messages"] = {"r": {"role": "assistant", "content": content}}
    assert read(value).nodes[0].content == text


def test_many_beginnings_without_an_end_take_one_pass() -> None:
    value = open_webui()
    content = '<details type="reasoning">' * 10_000
    value["chat"]["history"]["messages"] = {"r": {"role": "assistant", "content": content}}
    assert read(value).nodes[0].content == content


def test_a_rating_of_open_webuis_may_be_bad_or_none() -> None:
    value = open_webui()
    reply = value["chat"]["history"]["messages"]["r1"]
    reply["annotation"] = {"rating": -1}
    assert read(value).nodes[1].feedback == "down"
    reply["annotation"] = {"rating": 5}
    assert read(value).nodes[1].feedback is None


def own(**more: Any) -> Any:
    return {**OWN, **more}


def own_message(**more: Any) -> Any:
    return own(messages=[{**OWN["messages"][0], **more}])  # type: ignore[index]  # a test's own JSON


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (own(version=2), "unknown_version"),
        (own(conversation=[]), "not_readable"),
        (own(messages={}), "not_readable"),
        (own(messages=[1]), "not_readable"),
        (own_message(id=7), "not_readable"),
        (own_message(content=None), "not_readable"),
        (own_message(createdAt="yesterday"), "not_readable"),
        (own_message(status="dreaming"), "not_readable"),
        (own_message(notices=[1]), "not_readable"),
        (own_message(error={"code": "x"}), "not_readable"),
        (own_message(parentId=1), "not_readable"),
        (b"[1]", "unknown_format"),
        (b"7", "unknown_format"),
        (b'{"a": 1}', "unknown_format"),
        (b'{"a": 1, "a": 2}', "not_readable"),
        (b'{"a": NaN}', "not_readable"),
        (b'{"a": 1e999}', "not_readable"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "not_readable"),
        (b"\xff{}", "not_readable"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not_readable"),
    ],
)
def test_what_is_no_conversation_is_told_why(value: Any, code: str) -> None:
    found = flaw_of(value)
    assert found.code == code
    assert "yesterday" not in found.message


def test_a_flaw_tells_of_which_conversation() -> None:
    assert read_conversation(json.dumps(own(messages={})).encode())[0] == "c_1"
    assert read_conversation(json.dumps(chatgpt(mapping={"a": 1})).encode())[0] == "conv-one"
    assert read_conversation(b'{"chat": {"id": "x", "messages": 1}}')[0] == "x"


def test_of_ours_what_was_said_by_neither_side_is_left_out() -> None:
    assert read(own_message(role="tool")).nodes[0].role is None
    assert read(own_message(status="running")).nodes[0].status is Status.STOPPED
    assert read(own_message(createdAt="2026-11-30T10:00:00")).nodes[0].created_at == (
        read(OWN).nodes[0].created_at
    )
