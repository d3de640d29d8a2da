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
_DATA = b"data: "
_EVENT_END = b"\n\n"
# Ids are kept as 32-bit integers; no vocabulary comes near.
_ID_LIMIT = 2**31
# A character has a few tokens. Some control tokens may come before it, but not without end.
_HELD_IDS = 4096


class ChunkBroken(ValueError):
    """The replica sent something that is no chunk."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """The bytes around text and ids that all plain events of one stream share.

    `between` are those from one event's ids to the next one's text.
    """

    head: bytes
    middle: bytes
    tail: bytes
    between: bytes


class ChunkReader:
    """Turns one stream's events into units.

    Invariant: `_held` are the ids of tokens whose characters are not whole yet; they go with the
    text that completes them.
    """

    def __init__(self) -> None:
        self._shape: _Shape | None = None
        self._held: TokenIds = ()
        self.finish: str | None = None
        self.usage: Usage | None = None
        self.done = False

    def read(self, events: bytes) -> list[Unit]:
        """The units in whole events, each ended by an empty line but for the last one, which lacks
        it; ChunkBroken for anything strange."""
        if self._shape is not None and not self._held:
            plain = _cut(events, self._shape)
            if plain is not None:
                return plain
        units = []
        for event in events.split(_EVENT_END):
            if event.startswith(_DATA):
                unit = self._parse(event[len(_DATA) :])
                if unit is not None:
                    units.append(unit)
        return units

    def _unit(self, text: str, ids: TokenIds) -> Unit | None:
        if not text.isascii() and not _is_whole(text):
            raise ChunkBroken("the replica sent half of a surrogate pair")
        if self._held:
            ids = self._held + ids
        if not text:
            if len(ids) > _HELD_IDS:
                raise ChunkBroken("the replica sends tokens and no text")
            self._held = ids
            return None
        self._held = ()
        return Unit(text, ids)

    def _parse(self, data: bytes) -> Unit | None:
        if data == b"[DONE]":
            self.done = True
            return None
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
        if not isinstance(text, str) or (ids and not _are_ids(ids)):
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
            # Counts beyond all sense are passed on: what is charged is clamped where it is settled.
            self.usage = Usage(
                input=_count(usage.get("prompt_tokens") or 0),
                # Missing is unknown, and charged as if nothing had been cached.
                cached=_count(details.get("cached_tokens") or 0),
                output=_count(usage.get("completion_tokens") or 0),
            )


def _count(value: object) -> int:
    if type(value) is not int:
        raise ValueError("this is no count")
    return value


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _learn(data: bytes, text: str) -> _Shape | None:
    """The shape of a plain event, or None if it is not the expected one."""
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
    head = _DATA + source[:start].encode()
    middle = source[end - 1 : ids_at + len(_IDS)].encode()
    tail = source[close:].encode()
    return _Shape(head, middle, tail, tail + _EVENT_END + head)


def _cut(events: bytes, shape: _Shape) -> list[Unit] | None:
    """The units of events that all are of this shape and have a text, or None.

    `middle` begins with the quote that ends the text and holds unescaped quotes, which no text
    inside JSON can contain: its first match is the text's end. Nor can it contain a line end, so
    that the line ends count the events.
    """
    if not (events.startswith(shape.head) and events.endswith(shape.tail)):
        return None
    parts = events[len(shape.head) : -len(shape.tail)].split(shape.between)
    if events.count(b"\n") != 2 * (len(parts) - 1):
        return None
    units = []
    for part in parts:
        raw, middle, numbers = part.partition(shape.middle)
        if not raw or not middle:
            return None
        try:
            text = raw.decode() if b"\\" not in raw else _unescaped(raw)
            ids = (int(numbers),) if numbers.isdigit() else tuple(json.loads(b"[%b]" % numbers))
        except ValueError:
            return None
        if not _are_ids(ids):
            return None
        units.append(Unit(text, ids))
    return units


def _unescaped(raw: bytes) -> str:
    """A text in JSON without its quotes; ValueError for none, or for half of a surrogate pair."""
    text = json.loads(b'"%b"' % raw)
    assert isinstance(text, str)
    text.encode()
    return text


def _are_ids(numbers: tuple[object, ...]) -> bool:
    """Whether these are ids, one at least."""
    for number in numbers:
        if type(number) is not int or not 0 <= number < _ID_LIMIT:
            return False
    return bool(numbers)
