"""Reads the chunks of a streamed completion: text, token ids, the finish and the usage.

The expected shape is cut out of the bytes, as a JSON parser costs a third of the token path;
whatever does not look exactly like it goes through the parser.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tertulia.core.types import TokenIds, Unit, Usage

_TEXT = '"text":"'
_IDS = '"token_ids":['
# Ids are kept as 32-bit integers; no vocabulary comes near.
_ID_LIMIT = 2**31


class ChunkBroken(ValueError):
    """The replica sent something that is no chunk."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """The bytes around text and ids that all plain chunks of one stream share."""

    head: bytes
    middle: bytes
    tail: bytes


class ChunkReader:
    """Turns the data of one stream's events into units.

    Invariant: `_held` are the ids of tokens whose characters are not whole yet; they go with the
    text that completes them.
    """

    def __init__(self) -> None:
        self._shape: _Shape | None = None
        self._held: TokenIds = ()
        self.finish: str | None = None
        self.usage: Usage | None = None
        self.done = False

    def read(self, data: bytes) -> Unit | None:
        """The unit in one event's `data`, if it has one; ChunkBroken for anything strange."""
        shape = self._shape
        if shape is not None and data.startswith(shape.head):
            cut = _cut(data, shape)
            if cut is not None:
                return self._unit(*cut)
        if data == b"[DONE]":
            self.done = True
            return None
        return self._parse(data)

    def _unit(self, text: str, ids: TokenIds) -> Unit | None:
        if ids and not 0 <= min(ids) <= max(ids) < _ID_LIMIT:
            raise ChunkBroken("the replica sent ids that are none")
        if not text.isascii() and not _is_whole(text):
            raise ChunkBroken("the replica sent half of a surrogate pair")
        ids = self._held + ids
        if not text:
            self._held = ids
            return None
        self._held = ()
        return Unit(text, ids)

    def _parse(self, data: bytes) -> Unit | None:
        try:
            chunk: dict[str, Any] = json.loads(data)
            if "error" in chunk:
                raise ChunkBroken("the replica reported an error in mid-stream")
            self._read_usage(chunk.get("usage"))
            choices = chunk.get("choices") or ()
            if not choices:
                return None
            choice = choices[0]
            text, ids = choice.get("text") or "", tuple(choice.get("token_ids") or ())
            finish = choice.get("finish_reason")
        except (ValueError, AttributeError, TypeError, LookupError, RecursionError) as error:
            raise ChunkBroken("the replica sent no completion chunk") from error
        if not isinstance(text, str) or not all(type(number) is int for number in ids):
            raise ChunkBroken("the replica sent a chunk of another kind")
        if finish is not None and not isinstance(finish, str):
            raise ChunkBroken("the replica sent a finish of another kind")
        if text and finish is None and not ids and not self._held:
            # It could not be continued, and nobody could say how long it is.
            raise ChunkBroken("the replica sent text without its token ids")
        if finish is not None:
            self.finish = finish
        elif text and ids:
            self._shape = _learn(data, text)
        return self._unit(text, ids)

    def _read_usage(self, usage: dict[str, Any] | None) -> None:
        if usage:
            details = usage.get("prompt_tokens_details") or {}
            self.usage = Usage(
                input=_count(usage["prompt_tokens"]),
                # Missing is unknown, and charged as if nothing had been cached.
                cached=_count(details.get("cached_tokens") or 0),
                output=_count(usage.get("completion_tokens") or 0),
            )


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("this is no count")
    return value


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _learn(data: bytes, text: str) -> _Shape | None:
    """The shape of a plain chunk, or None if it is not the expected one."""
    source = data.decode()
    at = source.find(_TEXT)
    if at < 0:
        return None
    start = at + len(_TEXT)
    try:
        found, end = json.JSONDecoder().raw_decode(source, start - 1)
    except ValueError:
        return None
    ids_at = source.find(_IDS, end)
    close = source.find("]", ids_at)
    if found != text or ids_at < 0 or close < 0:
        return None
    middle = source[end - 1 : ids_at + len(_IDS)]
    return _Shape(source[:start].encode(), middle.encode(), source[close:].encode())


def _cut(data: bytes, shape: _Shape) -> tuple[str, TokenIds] | None:
    """Text and ids of a chunk of this shape, or None.

    `middle` begins with the quote that ends the text and holds unescaped quotes, which no text
    inside JSON can contain: its first match is the text's end.
    """
    start = len(shape.head)
    end = data.find(shape.middle, start)
    if end < 0:
        return None
    first_id = end + len(shape.middle)
    close = data.find(b"]", first_id)
    if data[close:] != shape.tail:
        return None
    raw = data[start:end]
    try:
        text = json.loads(b'"' + raw + b'"') if b"\\" in raw else raw.decode()
        ids = tuple(map(int, data[first_id:close].split(b",")))
    except ValueError:
        return None
    return text, ids
