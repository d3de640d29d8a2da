"""A reply as OpenAI's stream chunks. On the token path it joins bytes and never parses a text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tertulia.core.turn import to_json
from tertulia.core.types import Entry, Turn
from tertulia.gateway.line import Place
from tertulia.gateway.problems import CODES, Problem, openai_error

_DONE: Final = b"data: [DONE]\n\n"
_TEXT_START: Final = len(b'{"text":')

FINISHES: Final[Mapping[str, str]] = {
    "stop": "stop",
    "length": "length",
    "stopped": "stop",
    "refused": "content_filter",
}


class ChunkRender:
    """Renders one reply. After an error object it says nothing more: clients take it as the end."""

    def __init__(self, turn: Turn, *, with_usage: bool):
        self._id = completion_id(turn)
        self._created = int(turn.created_at)
        self._with_usage = with_usage
        self._has_text = False
        self._is_over = False
        self._begin_with(turn.model or turn.requested)

    def start(self) -> bytes:
        return b": waiting\n\n"

    def entries(self, entries: Sequence[Entry]) -> bytes:
        if self._is_over:
            return b""
        return b"".join([self._entry(entry) for entry in entries])

    def reset(self, reason: str) -> bytes:
        """What was sent can't be taken back here: then the stream has failed."""
        return self.broken() if self._has_text else b": %b\n\n" % reason.encode()

    def place(self, place: Place) -> bytes:
        """A comment: clients would take an event of another name for a chunk."""
        return b": queue position=%d wait=%ds\n\n" % (place.position, place.wait_s)

    def broken(self) -> bytes:
        if self._is_over:
            return b""
        lost = Problem("busy", "The stream broke off; send the request again.", retry_after_s=1)
        return self._error(lost)

    def _entry(self, entry: Entry) -> bytes:
        if entry.kind == "delta":
            self._has_text = True
            return self._text_before + entry.data[_TEXT_START:-1] + self._text_after
        data = json.loads(entry.data)
        if entry.kind == "meta":
            self._begin_with(data["model"] or data["requested"])
            delta = {"role": "assistant", "content": ""}
            return self._chunk(delta, None, tertulia=chosen_json(data))
        if entry.kind == "refusal":
            return self._chunk({"refusal": data["text"]}, None)
        if entry.kind == "done":
            return self._end(data)
        if entry.kind == "fail":
            return self._error(failure_problem(data))
        return b": %b\n\n" % entry.kind.encode()

    def _end(self, data: Mapping[str, Any]) -> bytes:
        if data["finish"] not in FINISHES:
            return self._error(abandoned())
        self._is_over = True
        end = self._chunk({}, FINISHES[data["finish"]])
        if self._with_usage:
            last = {**self._head(), "choices": [], "usage": usage_json(data["usage"])}
            end += b"data: %b\n\n" % to_json(last)
        return end + _DONE

    def _error(self, problem: Problem) -> bytes:
        self._is_over = True
        return b"data: %b\n\n" % to_json({"error": openai_error(problem)})

    def _begin_with(self, model: str) -> None:
        """Prepares everything around a text once the model's name is known."""
        self._model = model
        mark = "\x1a"
        whole = self._chunk({"content": mark}, None)
        self._text_before, self._text_after = whole.split(json.dumps(mark).encode())

    def _chunk(self, delta: Mapping[str, Any], finish: str | None, **more: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk: dict[str, Any] = {**self._head(), "choices": [choice], **more}
        if self._with_usage:
            chunk["usage"] = None
        return b"data: %b\n\n" % to_json(chunk)

    def _head(self) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
        }


def completion_id(turn: Turn) -> str:
    """The reply's id as OpenAI's clients know it."""
    return f"chatcmpl-{turn.reply_id}"


def chosen_json(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Why this model answered, for programs that want to know; OpenAI has no word for it."""
    return {name: meta[name] for name in ("requested", "reason", "notices")}


def usage_json(usage: Mapping[str, int]) -> dict[str, Any]:
    """Tokens in OpenAI's words."""
    return {
        "prompt_tokens": usage["input"],
        "completion_tokens": usage["output"],
        "total_tokens": usage["input"] + usage["output"],
        "prompt_tokens_details": {"cached_tokens": usage["cached"]},
    }


def abandoned() -> Problem:
    """For a client that is there after all: its half answer must not look like a whole one."""
    sentence = "The reply was given up because nobody seemed to follow it; send it again."
    return Problem("busy", sentence, retry_after_s=1, openai_code="abandoned")


def failure_problem(data: Mapping[str, Any]) -> Problem:
    """The `fail` event as a Problem: passing where trying again makes sense."""
    code = data["code"] if data["code"] in CODES else "busy" if data["retryable"] else "internal"
    wait_s = data.get("retryAfterSeconds", 1) if data["retryable"] else None
    return Problem(code, data["message"], retry_after_s=wait_s, openai_code=data["code"])
