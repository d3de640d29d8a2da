"""Takes the file of an import in, as a form or as it is: no more of it is in memory than one part.

It looks at the first bytes alone. Nobody sees a file that did not come whole.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, Literal

from starlette.requests import ClientDisconnect, Request

from tertulia.core.files import PART_BYTES
from tertulia.core.imports import ImportRules
from tertulia.gateway.desk import Desk
from tertulia.gateway.incoming import FORM_BYTES, IncomingFile, body_of, coming_in
from tertulia.gateway.multipart import (
    FieldBegins,
    FieldEnds,
    FormReader,
    MalformedForm,
    boundary_of,
)
from tertulia.gateway.problems import Problem, invalid

# The longest upload: the largest file at a modest line's 250 kB a second.
_UPLOAD_S: Final = 900.0
# It is read once, minutes later, and deleted then; a day is for a service that was down.
_KEPT_S: Final = 86_400.0
_BARE_TYPES: Final = frozenset(
    ("", "application/json", "application/octet-stream", "application/zip",
     "application/x-zip-compressed")
)  # fmt: skip
_FORM_TYPE: Final = "multipart/form-data"
_BEGINNINGS: Final = (b"PK", b"[", b"{", b"\xef\xbb\xbf")


def import_bytes(rules: ImportRules) -> int:
    """The longest body of an import."""
    return rules.file_bytes + FORM_BYTES


async def take_import_file(request: Request, desk: Desk, owner: str) -> tuple[str, int] | None:
    """The stored file's id and length; None if its sender left. Problem says what is wrong, and
    nothing is kept."""
    taking = _Taking(desk, owner)
    try:
        async with (
            coming_in(request, taking.file, lasts_s=_UPLOAD_S),
            aclosing(_contents(request, desk)) as contents,
        ):
            async for data in contents:
                await taking.take(data)
            return await taking.finish()
    except ClientDisconnect:
        return None


async def _contents(request: Request, desk: Desk) -> AsyncGenerator[bytes, None]:
    """The bytes of the file, out of the form that it came in, if it did."""
    given = request.headers.get("content-type", "")
    media_type = given.partition(";")[0].strip().lower()
    if media_type != _FORM_TYPE:
        if media_type not in _BARE_TYPES:
            sentence = "Send the file as it is (a zip archive or JSON), or in a form."
            raise Problem("invalid_request", sentence, field="Content-Type", status=415)
        async for chunk in body_of(request, import_bytes(desk.rules.imports)):
            yield chunk
        return
    form, is_file, has_file = FormReader(boundary_of(given)), False, False
    async for chunk in body_of(request, import_bytes(desk.rules.imports)):
        for event in form.feed(chunk):
            if isinstance(event, FieldBegins):
                is_file = event.name == "file"
                if is_file and has_file:
                    raise invalid("file", "The form holds two files; send one.")
                has_file = has_file or is_file
            elif is_file and not isinstance(event, FieldEnds):
                yield event
    if not form.is_over:
        raise MalformedForm("it ends too early")


class _Taking:
    """The file of an import on its way in."""

    def __init__(self, desk: Desk, owner: str) -> None:
        self._desk = desk
        self.file = IncomingFile(desk, owner)

    async def take(self, data: bytes) -> None:
        """The next bytes of the file."""
        self.file.held += data
        self._demand_likely()
        limit = self._desk.rules.imports.file_bytes
        if self.file.size > limit:
            sentence = f"The file of an import may have {limit} bytes."
            raise Problem("body_too_large", sentence, field="file", more={"limit": limit})
        while len(self.file.held) > PART_BYTES:
            await self._store("more")

    async def finish(self) -> tuple[str, int]:
        """The file is whole."""
        if not self.file.stored and not self.file.held.strip():
            raise invalid("file", "There is no file, or it is empty.")
        if not self.file.stored and not self.file.held.lstrip().startswith(_BEGINNINGS):
            raise _unlikely()
        await self._store("last")
        await self.file.end()
        return self.file.id, self.file.stored

    def _demand_likely(self) -> None:
        """An archive or JSON, by its first bytes: most mistakes are told at once."""
        begins = bytes(self.file.held[:PART_BYTES]).lstrip() if not self.file.stored else b""
        if len(begins) >= len(_BEGINNINGS[-1]) and not begins.startswith(_BEGINNINGS):
            raise _unlikely()

    async def _store(self, which: Literal["more", "last"]) -> None:
        await self.file.store(which, name="import", purpose="import", kept_s=_KEPT_S)


def _unlikely() -> Problem:
    return invalid("file", "The file is neither a zip archive nor JSON.")
