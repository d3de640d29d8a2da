"""Reads a form as it arrives (RFC 7578), in bounded memory. It does no input or output itself.

A file in a form may be larger than a process should hold: its bytes are handed on as they come.
"""

from __future__ import annotations

from email.message import Message
from typing import Final, NamedTuple

# Names, a file's name and a media type; more is no form.
_HEAD_BYTES: Final = 8_192
_BOUNDARY_CHARS: Final = 70
# Reading the parameters of a header takes the square of their number: a form needs three, and a
# file's name may hold some of what stands between them.
_PARAMETERS: Final = 64


class MalformedForm(Exception):
    """What came is no form; the message says where."""


class FieldBegins(NamedTuple):
    """The next bytes are this field's. `file_name` is None for a plain one."""

    name: str
    file_name: str | None


class FieldEnds(NamedTuple):
    """The field that began last is whole."""


Event = FieldBegins | FieldEnds | bytes


def boundary_of(content_type: str) -> bytes:
    """What stands between the fields of a form; MalformedForm if this is no form."""
    header = Message()
    header["content-type"] = content_type
    try:
        boundary = _parameter(header, "content-type", "boundary")
    except ValueError:
        raise MalformedForm("the form's media type can't be read") from None
    if header.get_content_type() != "multipart/form-data" or not isinstance(boundary, str):
        raise MalformedForm("the body must be sent as multipart/form-data")
    if not 0 < len(boundary) <= _BOUNDARY_CHARS or not boundary.isascii():
        raise MalformedForm("the form's boundary is not valid")
    return boundary.encode()


class FormReader:
    """What a form says, event by event. Invariant: it holds no more than one head or boundary,
    and never a byte of a field that it could have handed on."""

    def __init__(self, boundary: bytes) -> None:
        self._border = b"\r\n--" + boundary
        # The first border may stand at the very beginning, as if a line had ended before it.
        self._held = b"\r\n"
        self._state = "preamble"

    @property
    def is_over(self) -> bool:
        """Whether the last border was read."""
        return self._state == "over"

    def feed(self, data: bytes) -> list[Event]:
        """What the next bytes of the body say; MalformedForm where they are no form."""
        self._held += data
        events: list[Event] = []
        while self._step(events):
            pass
        return events

    def _step(self, events: list[Event]) -> bool:
        """Reads on; False when that takes more bytes."""
        if self._state in ("preamble", "field"):
            return self._to_border(events)
        if self._state == "border":
            return self._after_border()
        if self._state == "head":
            return self._head(events)
        self._held = b""  # what follows a form is nobody's
        return False

    def _to_border(self, events: list[Event]) -> bool:
        at = self._held.find(self._border)
        safe = at if at >= 0 else max(0, len(self._held) - len(self._border) + 1)
        if self._state == "field" and safe:
            events.append(self._held[:safe])
        if at < 0:
            self._held = self._held[safe:]
            return False
        if self._state == "field":
            events.append(FieldEnds())
        self._held = self._held[at + len(self._border) :]
        self._state = "border"
        return True

    def _after_border(self) -> bool:
        if self._held.startswith(b"--"):
            self._state = "over"
            return True
        end = self._held.find(b"\r\n")
        if end < 0:
            if len(self._held) > _HEAD_BYTES:
                raise MalformedForm("a border of the form does not end")
            return False
        if self._held[:end].strip(b" \t"):
            raise MalformedForm("a border of the form is followed by something else")
        # Its end is also the end of the line before the first header.
        self._held = self._held[end:]
        self._state = "head"
        return True

    def _head(self, events: list[Event]) -> bool:
        end = self._held.find(b"\r\n\r\n")
        if end < 0 or end > _HEAD_BYTES:
            if len(self._held) > _HEAD_BYTES:
                raise MalformedForm("the head of a field is too long")
            return False
        events.append(_field(self._held[:end]))
        self._held = self._held[end + 4 :]
        self._state = "field"
        return True


def _field(head: bytes) -> FieldBegins:
    for line in head.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        if colon and name.strip().lower() == b"content-disposition":
            header = Message()
            header["content-disposition"] = value.decode("utf-8", "replace").strip()
            try:
                field = _parameter(header, "content-disposition", "name")
                file_name = header.get_filename()
            except ValueError:  # numbers and encodings that nobody means
                raise MalformedForm("the head of a field can't be read") from None
            if header.get_content_disposition() != "form-data" or not isinstance(field, str):
                break
            return FieldBegins(field, file_name)
    raise MalformedForm("a field of the form has no name")


def _parameter(header: Message, name: str, parameter: str) -> object:
    """One parameter of a header; ValueError where they can't be read."""
    if header[name].count(";") > _PARAMETERS:
        raise ValueError(name)
    return header.get_param(parameter, header=name)
