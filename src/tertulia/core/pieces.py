"""Cuts a JSON text that is too large to be held into the values it lists, as its bytes come.

It looks at brackets and strings alone: whether a piece is JSON is for whoever reads it. No byte is
looked at twice, however the text was cut.
"""

from __future__ import annotations

import re
from typing import Final

# Up to the next sign that opens or ends something, past whole strings; or up to the beginning of a
# string that goes on in later bytes.
_TO_SIGN: Final = re.compile(
    rb'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+(["{}\[\]])', re.DOTALL
)
_IN_STRING: Final = re.compile(rb'["\\]')
_OPENS_LIST: Final = ord("[")
_BLANK: Final = b" \t\r\n"
_BOM: Final = b"\xef\xbb\xbf"


class NotPieces(Exception):
    """This is no list of JSON values, nor one object; the message says why."""


class TooLong:
    """Stands for a piece of more bytes than are held; they were passed over."""


Piece = bytes | TooLong


class Cutter:
    """Cuts the elements of one array, or one object, out of a text. Pieces of more than `most`
    bytes are passed over. Invariant: it holds no more than `most` bytes and what was fed last."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._depth = 0
        self._is_list = False
        self._began = False
        self._is_over = False
        self._in_string = False
        self._is_escaped = False
        self._held = bytearray()
        self._holds = False  # a piece has begun and is not too long yet
        self._is_long = False

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces that end in the next bytes; NotPieces where they can't be cut."""
        if not self._began:
            data = self._begin(data)
        found: list[Piece] = []
        at = start = 0
        while at < len(data):
            if self._in_string:
                at = self._through_string(data, at)
                continue
            if self._is_over and data[at:].strip(_BLANK):
                raise NotPieces("something follows its end")
            token = _TO_SIGN.match(data, at)
            if token is None:
                break
            at = token.end()
            sign = data[at - 1]
            if sign in b"{[":
                start = self._open(at - 1, start, is_list=sign == _OPENS_LIST)
            elif sign in b"}]":
                self._close(data, start, at, found)
            else:
                self._in_string = True
        if self._holds:
            self._hold(data[start:])
        return found

    def end(self) -> None:
        """Nothing more comes; NotPieces if that is too early."""
        if not self._is_over:
            raise NotPieces("it ends too early")

    def _begin(self, data: bytes) -> bytes:
        self._held += data
        held = bytes(self._held)
        begins = held.removeprefix(_BOM).lstrip(_BLANK)
        if not begins or _BOM.startswith(held):
            if len(self._held) > self._most:
                raise NotPieces("it is blank")
            return b""
        if begins[:1] not in (b"[", b"{"):
            raise NotPieces("it begins neither with a list nor with an object")
        self._began = True
        self._held.clear()
        return begins

    def _open(self, at: int, start: int, *, is_list: bool) -> int:
        """Where the piece in hand begins in these bytes, after something was opened at `at`."""
        is_outer_list = self._depth == 0 and is_list
        self._is_list = self._is_list or is_outer_list
        begins = self._depth == (1 if self._is_list else 0) and not is_outer_list
        self._depth += 1
        if begins:
            self._holds, self._is_long = True, False
            return at
        return start

    def _close(self, data: bytes, start: int, end: int, found: list[Piece]) -> None:
        assert self._depth > 0, "what follows the end is refused before"
        self._depth -= 1
        self._is_over = self._depth == 0
        if self._depth != (1 if self._is_list else 0) or not (self._holds or self._is_long):
            return
        if self._holds:
            self._hold(data[start:end])
        found.append(TooLong() if self._is_long else bytes(self._held))
        self._held.clear()
        self._holds = self._is_long = False

    def _hold(self, data: bytes) -> None:
        if len(self._held) + len(data) > self._most:
            self._held.clear()
            self._holds, self._is_long = False, True
        else:
            self._held += data

    def _through_string(self, data: bytes, at: int) -> int:
        """Where to go on: behind the string's end or a sign in it, or at the end of the bytes."""
        if self._is_escaped:
            self._is_escaped = False
            return at + 1
        sign = _IN_STRING.search(data, at)
        if sign is None:
            return len(data)
        if sign.group() == b'"':
            self._in_string = False
        else:
            self._is_escaped = True
        return sign.end()
