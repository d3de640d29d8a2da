"""Reads the head of a GGUF file: its metadata and the table of its tensors, every number checked.

It must never trust a count, a length or an offset of the file: a hostile one is refused before
anything of its size is allocated, and nothing that is not GGUF is ever opened further.
"""

import importlib
import math
import mmap
import re
import struct
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

VERSIONS = (2, 3)  # what llama.cpp reads; version 1 had other lengths
HEADER_BYTES = 128 << 20  # the largest vocabularies, of 260,000 tokens, take 16 MB
FIELDS = 4096  # files in use have fewer than 60
ENTRIES = 4_000_000  # of all arrays together: at most about 300 MB as Python's objects
KEY_BYTES = 65_535  # of the format
TEXT_BYTES = 16 << 20  # the longest honest text is a chat template of some 20 kB
TENSORS = 65_536  # a model of 700 billion parameters has about 2,500
NAME_BYTES = 64  # llama.cpp's own limit for a tensor's name
DIMENSIONS = 4
SHOWN_CHARS = 200
ALIGNMENT, LARGEST_ALIGNMENT = 32, 65_536  # the format's own; a page of any machine

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
_SCALARS |= {12: "d"}
_TEXT, _ARRAY = 8, 9
_PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")


class GgufRefused(ValueError):
    """The file is not a GGUF file that can be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One row of the table; `offset` counts from the beginning of the file."""

    name: str
    shape: tuple[int, ...]
    kind: str
    offset: int
    n_bytes: int


@dataclass(frozen=True)
class Header:
    """What a GGUF file says about itself."""

    version: int
    fields: dict[str, Any]
    tensors: tuple[Tensor, ...]

    @property
    def architecture(self) -> str:
        return self.text("general.architecture")

    @cached_property
    def n_parameters(self) -> int:
        """As stored: a head that is tied to the embedding may be stored a second time."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors)

    @cached_property
    def n_tensors_of(self) -> dict[str, int]:
        """How many tensors are of which kind, the frequent kinds first."""
        kinds = [tensor.kind for tensor in self.tensors]
        return {kind: kinds.count(kind) for kind in sorted(set(kinds), key=kinds.count)[::-1]}

    @property
    def file_type(self) -> str:
        """The quantisation as the file names it, such as Q4_K_M; else its commonest kind."""
        known: Any = importlib.import_module("gguf").LlamaFileType
        try:
            name: str = known(self.fields.get("general.file_type")).name
        except ValueError:
            return next(iter(self.n_tensors_of))
        return name.removeprefix("MOSTLY_").removeprefix("ALL_")

    def text(self, name: str) -> str:
        """A field that is text, made safe to show; empty where there is none."""
        found = self.fields.get(name)
        if not isinstance(found, str):
            return ""
        return "".join(letter for letter in found[:SHOWN_CHARS] if letter.isprintable())

    def number(self, name: str) -> int:
        """A field that must be a whole number above zero."""
        found = self.fields.get(name)
        if not isinstance(found, int) or isinstance(found, bool) or not 0 < found < 1 << 31:
            raise GgufRefused(f"its {name} is {found!r}")
        return found


def read_header(path: Path) -> Header:
    """The head of this file, or `GgufRefused`. Reads no weights; takes a second at most."""
    with path.open("rb") as file:
        start = file.read(8)
        _check_magic(start)
        version = int.from_bytes(start[4:8], "little")
        if version not in VERSIONS:
            swapped = version & 0xFFFF == 0 and version
            what = "in the byte order of other machines" if swapped else f"GGUF version {version}"
            raise GgufRefused(f"it is {what}; versions 2 and 3, little-endian, are supported")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _parsed(data, version)


def _check_magic(start: bytes) -> None:
    if start.startswith(_PICKLES):
        raise GgufRefused(
            "it is a pickle or a zip archive, which could run code: only GGUF is read"
        )
    if start[:4] != b"GGUF":
        raise GgufRefused("it is not a GGUF file: its first four bytes are not GGUF")
    if len(start) < 8:
        raise GgufRefused("it ends in the middle of its header")


def _parsed(data: mmap.mmap, version: int) -> Header:
    cursor = _Cursor(data)
    n_tensors, n_fields = cursor.number("Q"), cursor.number("Q")
    if n_fields > FIELDS or not 0 < n_tensors <= TENSORS:
        raise GgufRefused(f"it claims {n_fields} fields and {n_tensors} tensors")
    fields: dict[str, Any] = {}
    for _ in range(n_fields):
        name = cursor.text(KEY_BYTES)
        if name in fields:
            raise GgufRefused(f"it has the field {name!r:.80} twice")
        fields[name] = cursor.value(cursor.number("I"))
    if not re.fullmatch(r"[a-z0-9_-]{1,64}", str(fields.get("general.architecture"))):
        raise GgufRefused("it names no architecture")
    rows = [_row(cursor) for _ in range(n_tensors)]
    alignment = fields.get("general.alignment", ALIGNMENT)
    if alignment not in [1 << n for n in range(3, LARGEST_ALIGNMENT.bit_length())]:
        raise GgufRefused(f"its alignment is {alignment!r}")
    begin = -(-cursor.at // alignment) * alignment
    return Header(version, fields, _placed(rows, begin, alignment, len(data)))


def _row(cursor: "_Cursor") -> Tensor:
    name = cursor.text(NAME_BYTES)
    n_dimensions = cursor.number("I")
    if not 1 <= n_dimensions <= DIMENSIONS:
        raise GgufRefused(f"its tensor {name!r} has {n_dimensions} dimensions")
    shape = tuple(cursor.number("Q") for _ in range(n_dimensions))
    kind, offset = cursor.number("I"), cursor.number("Q")
    gguf: Any = importlib.import_module("gguf")
    try:
        block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind)]
    except (ValueError, KeyError) as error:
        raise GgufRefused(f"its tensor {name!r} is of the unknown kind {kind}") from error
    if not all(shape) or shape[0] % block:
        raise GgufRefused(f"its tensor {name!r} has the shape {shape}")
    n_bytes = math.prod(shape) // block * block_bytes
    return Tensor(name, shape, gguf.GGMLQuantizationType(kind).name, offset, n_bytes)


def _placed(rows: list[Tensor], begin: int, alignment: int, end: int) -> tuple[Tensor, ...]:
    """The rows with offsets from the file's beginning: inside it, aligned, none over another."""
    placed = [
        Tensor(row.name, row.shape, row.kind, begin + row.offset, row.n_bytes) for row in rows
    ]
    if len({row.name for row in placed}) < len(placed):
        raise GgufRefused("it has a tensor twice")
    for row in placed:
        if (row.offset - begin) % alignment or row.offset + row.n_bytes > end:
            raise GgufRefused(
                f"its tensor {row.name!r} lies at byte {row.offset} with {row.n_bytes} bytes, "
                f"in a file of {end}"
            )
    for row, following in pairwise(sorted(placed, key=lambda row: row.offset)):
        if row.offset + row.n_bytes > following.offset:
            raise GgufRefused(f"its tensors {row.name!r} and {following.name!r} overlap")
    return tuple(placed)


class _Cursor:
    """A place in the header; it never passes the end, and counts what arrays may still hold."""

    def __init__(self, data: mmap.mmap) -> None:
        self.at = 8  # after magic and version
        self._data = data
        self._end = min(len(data), HEADER_BYTES)
        self._entries_left = ENTRIES

    def number(self, code: str) -> Any:
        return self._numbers(code, 1)[0]

    def text(self, limit_bytes: int) -> str:
        n_bytes = self.number("Q")
        if n_bytes > limit_bytes:
            raise GgufRefused(f"it has a text of {n_bytes} bytes where {limit_bytes} is the most")
        begin = self._passed(n_bytes)
        try:
            return self._data[begin : self.at].decode()
        except UnicodeDecodeError as error:
            raise GgufRefused("it has a text that is not UTF-8") from error

    def value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self.text(TEXT_BYTES)
        if kind == _ARRAY:
            inner, count = self.number("I"), self.number("Q")
            self._entries_left -= count
            if self._entries_left < 0:
                raise GgufRefused(f"it has an array of {count} entries")
            if inner == _TEXT:
                return [self.text(TEXT_BYTES) for _ in range(count)]
            return list(self._numbers(_code(inner), count))
        return self.number(_code(kind))

    def _numbers(self, code: str, count: int) -> tuple[Any, ...]:
        layout = struct.Struct(f"<{count}{code}")
        return layout.unpack_from(self._data, self._passed(layout.size))

    def _passed(self, n_bytes: int) -> int:
        """Where the next bytes begin; afterwards the cursor stands behind them."""
        if n_bytes > self._end - self.at:
            raise GgufRefused("it ends in the middle of its header, or its header is too long")
        self.at += n_bytes
        return self.at - n_bytes


def _code(kind: int) -> str:
    if kind not in _SCALARS:
        raise GgufRefused(f"it has a value of the unknown kind {kind}")
    return _SCALARS[kind]
