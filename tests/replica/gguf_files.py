"""Writes GGUF files for tests: honest small ones, and hostile ones that lie where they are told to.

It knows the format from its description, not from the reader that it is there to test.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TEXT, ARRAY, UINT32, INT32, BOOL = 8, 9, 4, 5, 7
F32, Q4_0 = 0, 2
ALIGNMENT = 32

TOKENS = ["a", "b", "ab", "<|im_start|>", "<|im_end|>"]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Raw:
    """A value of a kind and with bytes that the test chose."""

    kind: int
    data: bytes


@dataclass(frozen=True)
class Row:
    """One tensor of the table; `offset` None is the next free place."""

    name: str = "token_embd.weight"
    shape: tuple[int, ...] = (32, 8)
    kind: int = F32
    offset: int | None = None
    n_bytes: int = 32 * 8 * 4


def chat_fields(**changes: Any) -> dict[str, Any]:
    """What a small honest model for chats says about itself; None leaves a field out."""
    fields: dict[str, Any] = {
        "general.architecture": "llama",
        "general.name": "Toy",
        "general.license": "mit",
        "general.file_type": 0,
        "llama.context_length": 128,
        "llama.block_count": 1,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [1, 1, 1, 3, 3],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.eos_token_id": 4,
        "tokenizer.ggml.bos_token_id": 3,
        "tokenizer.chat_template": CHATML,
    }
    fields |= {name.replace("__", "."): value for name, value in changes.items()}
    return {name: value for name, value in fields.items() if value is not None}


def gguf_bytes(
    fields: Mapping[str, Any] | None = None,
    rows: Sequence[Row] = (Row(),),
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_fields: int | None = None,
    n_tensors: int | None = None,
    more: bytes = b"",
) -> bytes:
    """A whole file. Counts can be made to lie; `more` comes after the last tensor."""
    fields = chat_fields() if fields is None else fields
    head = magic + struct.pack("<I", version)
    head += struct.pack("<Q", len(rows) if n_tensors is None else n_tensors)
    head += struct.pack("<Q", len(fields) if n_fields is None else n_fields)
    head += b"".join(text(name) + value(each) for name, each in fields.items())
    weights = b""
    for row in rows:
        offset = len(weights) if row.offset is None else row.offset
        head += text(row.name) + struct.pack("<I", len(row.shape))
        head += struct.pack(f"<{len(row.shape)}Q", *row.shape)
        head += struct.pack("<IQ", row.kind, offset)
        weights += b"\x01" * row.n_bytes
        weights += b"\0" * (-len(weights) % ALIGNMENT)
    return head + b"\0" * (-len(head) % ALIGNMENT) + weights + more


def text(words: str | bytes, claimed: int | None = None) -> bytes:
    """A text with its length, or with the length that is claimed for it."""
    data = words.encode() if isinstance(words, str) else words
    return struct.pack("<Q", len(data) if claimed is None else claimed) + data


def value(given: Any) -> bytes:
    """A kind and its bytes."""
    if isinstance(given, Raw):
        return struct.pack("<I", given.kind) + given.data
    if isinstance(given, str):
        return struct.pack("<I", TEXT) + text(given)
    if isinstance(given, bool):
        return struct.pack("<I?", BOOL, given)
    if isinstance(given, int):
        return struct.pack("<II", UINT32, given)
    inner = TEXT if given and isinstance(given[0], str) else INT32
    data = b"".join(text(each) if inner == TEXT else struct.pack("<i", each) for each in given)
    return struct.pack("<IIQ", ARRAY, inner, len(given)) + data
