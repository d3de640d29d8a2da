"""What is in the file of an import, piece by piece: a zip archive or a JSON text, bounded.

It runs in a thread: it waits for the bytes of the file and unpacks them. No more of the file is in
memory than some parts of it and one conversation; nothing is ever unpacked to a disk.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Final, NamedTuple, cast
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from tertulia.core.files import PART_BYTES
from tertulia.core.imports import ImportRules
from tertulia.core.pieces import Cutter, NotPieces, Piece

_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
# Python reads an archive's directory whole: some 100 bytes an entry, and some 700 of memory.
DIRECTORY_BYTES: Final = 16_000_000
ENTRIES: Final = 150_000
# Text packs to a fifth or a tenth; what packs to less than a hundredth was made to.
_MOST_PACKED: Final = 100
_ALWAYS_INFLATED: Final = 20_000_000
_READ_BYTES: Final = 64 * 1024
# Where conversations are in an archive, by whose it is; all else is pictures and profiles.
_ABOUT: Final = re.compile(r"(?:[^/]+/)?export\.json\Z")
_OWN: Final = re.compile(r"(?:[^/]+/)?conversations/[^/]+\.json\Z")
_CHATGPT: Final = re.compile(r"(?:[^/]+/)?conversations(?:[-_]?[0-9]+)?\.json\Z")
_ANY: Final = re.compile(r"[^/]+\.json\Z")
_BIT_ENCRYPTED: Final = 0x1
# What macOS adds to archives that it makes: of the same names, and not the same.
_SHADOWS: Final = "__MACOSX/"

_BROKEN: Final = (
    BadZipFile,
    EOFError,
    NotImplementedError,
    OverflowError,
    RuntimeError,
    ValueError,
    struct.error,
    zlib.error,
)


class NoExport(Exception):
    """The file can't be read, or not as an export; a stable word and a sentence for its owner."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code)
        self.code = code
        self.message = message


class Cut(NamedTuple):
    """A piece of the file, and how much of the text was read up to its end."""

    piece: Piece
    read_bytes: int


class StoredBytes:
    """A stored file as archives are read: `read_part(at, size)` gives its bytes.

    Invariant: it holds one part of it.
    """

    def __init__(self, read_part: Callable[[int, int], bytes], size: int) -> None:
        self._read_part = read_part
        self._at = 0
        self._held_at = 0
        self._held = b""
        self.size = size

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        at = offset + (0, self._at, self.size)[whence]
        if at < 0:
            raise ValueError("before the beginning")
        self._at = at
        return at

    def read(self, size: int = -1) -> bytes:
        """Bytes from here on; NoExport where more are asked for at once than any archive needs."""
        rest = max(0, self.size - self._at)
        wanted = rest if size < 0 else min(size, rest)
        if wanted > DIRECTORY_BYTES:
            raise NoExport("too_large", "The directory of the archive is too large.")
        found = bytearray()
        while len(found) < wanted:
            found += self._from_part(wanted - len(found))
        return bytes(found)

    def _from_part(self, wanted: int) -> bytes:
        begin = self._at - self._at % PART_BYTES
        if begin != self._held_at or not self._held:
            self._held, self._held_at = self._read_part(begin, PART_BYTES), begin
        found = self._held[self._at - begin :][:wanted]
        if not found:
            raise EOFError
        self._at += len(found)
        return found


class Archive:
    """The pieces of an import's file, in the order of the file.

    `total` is how many there are, where that can be told beforehand, and `total_bytes` how long
    the text is. Making one and reading on raise NoExport.
    """

    def __init__(self, stored: StoredBytes, rules: ImportRules) -> None:
        self._stored = stored
        self._rules = rules
        self._texts: tuple[ZipInfo, ...] | None = None
        self.total: int | None = None
        self.total_bytes = stored.size
        begins = stored.read(4)
        stored.seek(0)
        if begins in _ZIP:
            self._open()

    def pieces(self) -> Iterator[Cut]:
        """Every piece, from the first on."""
        if self._texts is None:
            yield from self._pieces_of(cast("IO[bytes]", self._stored), 0)
            return
        try:
            before = 0
            with ZipFile(cast("IO[bytes]", self._stored)) as archive:
                for text in self._texts:
                    with archive.open(text) as unpacked:
                        yield from self._pieces_of(unpacked, before)
                    before += text.file_size
        except _BROKEN:
            raise _no_archive() from None

    def _open(self) -> None:
        try:
            with ZipFile(cast("IO[bytes]", self._stored)) as archive:
                entries = archive.infolist()
                entries = [one for one in entries if not one.filename.startswith(_SHADOWS)]
        except _BROKEN:
            raise _no_archive() from None
        if len(entries) > ENTRIES:
            raise NoExport("too_large", f"The archive holds more than {ENTRIES} files.")
        is_own = any(_ABOUT.match(entry.filename) for entry in entries)
        texts: list[ZipInfo] = []
        for kind in (_OWN,) if is_own else (_CHATGPT, _ANY):
            texts = texts or [entry for entry in entries if kind.match(entry.filename)]
        if not texts:
            raise NoExport("not_an_export", "The archive holds no conversations.")
        self._demand_sound(texts)
        self._texts = tuple(texts)
        self.total = len(texts) if is_own else None
        self.total_bytes = sum(text.file_size for text in texts)

    def _demand_sound(self, texts: list[ZipInfo]) -> None:
        for text in texts:
            if text.flag_bits & _BIT_ENCRYPTED:
                raise NoExport("not_readable", "The archive is encrypted.")
            if text.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
                raise NoExport("not_readable", "The archive is packed in a way not known here.")
        inflated = sum(text.file_size for text in texts)
        most = min(
            self._rules.inflated_bytes, max(_ALWAYS_INFLATED, self._stored.size * _MOST_PACKED)
        )
        if inflated > most:
            raise NoExport("too_large", f"The archive holds more than {most} bytes of text.")

    def _pieces_of(self, text: IO[bytes], before: int) -> Iterator[Cut]:
        cutter = Cutter(most=self._rules.conversation_bytes)
        n_bytes = 0
        try:
            while data := text.read(_READ_BYTES):
                n_bytes += len(data)
                for piece in cutter.feed(data):
                    yield Cut(piece, before + n_bytes)
            cutter.end()
        except NotPieces as error:
            message = f"The file can't be read as JSON: {error}."
            raise NoExport("not_readable", message) from None


def _no_archive() -> NoExport:
    return NoExport("not_readable", "The archive can't be unpacked.")
