"""Takes a file in, piece by piece: no more of it is in memory than one part.

Nobody sees a file before it is whole and everything that was sent with it is right.
"""

from __future__ import annotations

import re
from contextlib import aclosing
from typing import Final, Literal

from starlette.requests import ClientDisconnect, Request

from tertulia.core.batches import BatchRules
from tertulia.core.files import PART_BYTES, StoredFile
from tertulia.gateway.desk import Desk
from tertulia.gateway.incoming import (
    FORM_BYTES,
    IncomingFile,
    body_of,
    coming_in,
    deleted_meanwhile,
)
from tertulia.gateway.multipart import (
    Event,
    FieldBegins,
    FieldEnds,
    FormReader,
    MalformedForm,
    boundary_of,
)
from tertulia.gateway.problems import Problem, invalid

# The longest upload: the largest file at a modest line's 500 kB a second.
_UPLOAD_S: Final = 600.0
_WORD_BYTES: Final = 1_000
_NAME_CHARS: Final = 255
_ANCHOR, _SECONDS = "expires_after[anchor]", "expires_after[seconds]"
# OpenAI's own bounds: an hour and 30 days.
SHORTEST_KEPT_S: Final = 3_600
LONGEST_KEPT_S: Final = 2_592_000
_SECONDS_WORD: Final = re.compile("[0-9]{1,12}")


def upload_bytes(rules: BatchRules) -> int:
    """The longest body of an upload."""
    return rules.file_bytes + FORM_BYTES


async def take_upload(request: Request, desk: Desk, owner: str) -> StoredFile | None:
    """The stored file; None if its sender left. Problem says what is wrong, and nothing is kept."""
    upload = _Upload(desk, owner)
    try:
        async with coming_in(request, upload.file, lasts_s=_UPLOAD_S):
            return await _read(request, upload)
    except ClientDisconnect:
        return None


async def _read(request: Request, upload: _Upload) -> StoredFile:
    form = FormReader(boundary_of(request.headers.get("content-type", "")))
    async with aclosing(body_of(request, upload_bytes(upload.rules))) as chunks:
        async for chunk in chunks:
            for event in form.feed(chunk):
                await upload.take(event)
    if not form.is_over:
        raise MalformedForm("it ends too early")
    return await upload.finish()


class _Upload:
    """One form on its way in, and the file of it."""

    def __init__(self, desk: Desk, owner: str) -> None:
        self.rules = desk.rules.batches
        self._desk = desk
        self._owner = owner
        self.file = IncomingFile(desk, owner)
        self._words: dict[str, bytes] = {}
        self._field = ""
        self._name: str | None = None

    async def take(self, event: Event) -> None:
        """The next that the form says."""
        if isinstance(event, FieldEnds):
            return
        if isinstance(event, FieldBegins):
            self._begin(event)
        elif self._field == "file":
            self.file.held += event
            if self.file.size > self.rules.file_bytes:
                raise self._too_long()
            while len(self.file.held) > PART_BYTES:
                await self._store("more")
        else:
            word = self._words[self._field] + event
            if len(word) > _WORD_BYTES:
                raise invalid(self._field[:64], "A field of the form is too long.")
            self._words[self._field] = word

    async def finish(self) -> StoredFile:
        """The whole file, if all that came with it is right."""
        if self._name is None:
            raise invalid("file", "The field file is missing.")
        if self._word("purpose") != "batch":
            raise invalid("purpose", "The purpose must be batch; nothing else is supported here.")
        self._kept_s()
        await self._store("last")
        file = await self._desk.files.find(self._owner, self.file.id)
        if file is None:
            raise deleted_meanwhile()
        await self.file.end()
        return file

    def _begin(self, field: FieldBegins) -> None:
        self._field = field.name
        if field.name == "file":
            if self._name is not None:
                raise invalid("file", "The form holds two files; send one.")
            self._name = _plain(field.file_name or "")
            if not self._name:
                raise invalid("file", "The field file must be a file with a name.")
        elif field.name in self._words or len(self._words) > 20:
            raise invalid("body", "The form names a field twice, or too many.")
        else:
            self._words[field.name] = b""

    async def _store(self, which: Literal["more", "last"]) -> None:
        await self.file.store(which, name=self._name or "", purpose="batch", kept_s=self._kept_s())

    def _kept_s(self) -> float:
        """How long it is kept, by what of the form has come."""
        if _ANCHOR not in self._words and _SECONDS not in self._words:
            return self.rules.kept_s
        if _ANCHOR in self._words and self._word(_ANCHOR) not in ("created_at", ""):
            raise invalid("expires_after", "The anchor of expires_after must be created_at.")
        seconds = self._word(_SECONDS)
        if _SECONDS not in self._words or not seconds:
            return self.rules.kept_s
        is_short = _SECONDS_WORD.fullmatch(seconds) is not None
        if not is_short or not SHORTEST_KEPT_S <= int(seconds) <= LONGEST_KEPT_S:
            sentence = (
                f"The seconds of expires_after must be {SHORTEST_KEPT_S} to {LONGEST_KEPT_S}."
            )
            raise invalid("expires_after", sentence)
        return float(seconds)

    def _word(self, name: str) -> str:
        return self._words.get(name, b"").decode("utf-8", "replace").strip()

    def _too_long(self) -> Problem:
        limit = self.rules.file_bytes
        sentence = f"A file may have {limit} bytes."
        return Problem("body_too_large", sentence, field="file", more={"limit": limit})


def _plain(name: str) -> str:
    """A file's name without its folders, and nothing that a terminal or a header would obey."""
    last = name.replace("\\", "/").rpartition("/")[2]
    kept = "".join(letter for letter in last if letter.isprintable())
    return kept.encode("utf-8", "ignore").decode()[:_NAME_CHARS].strip()
