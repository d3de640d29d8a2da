"""Describes a model file: its tokenizer, its `model.json`, and the hashes of all its files.

It must never describe a file that our tokenizer, the engine and the chat template do not agree on.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tertulia.description import DESCRIPTION
from tertulia.replica.catalogue import DefaultSampling
from tertulia.replica.chat import ChatPrompts
from tertulia.replica.children import ended_child, tail_of
from tertulia.replica.description import read_description
from tertulia.replica.header import GgufRefused, Header, read_header
from tertulia.replica.placing import InstallFailed, Progress, Report, sha256_of
from tertulia.replica.vocabulary import (
    Vocabulary,
    VocabularyRefused,
    vocabulary_of,
    write_tokenizer,
)
from tertulia.template import TemplateRefused

FORMAT = 1  # of model.json; an installed model of another format is made again
WEIGHTS, TOKENIZER = "model.gguf", "tokenizer.json"
MADE = (WEIGHTS, TOKENIZER, DESCRIPTION)
GRAPH, GRAPH_WEIGHTS = "openvino_model.xml", "openvino_model.bin"  # for OpenVINO, if it was made
FILES = "files.json"  # what each of them was when its hash was last found right


@dataclass(frozen=True)
class Card:
    """What is known of a model beyond its file."""

    name: str
    served_id: str
    title: str
    licence: str
    licence_from: str
    origin: str  # where its bytes came from
    source_sha256: str  # of the file as it was fetched
    sampling: DefaultSampling = DefaultSampling()  # noqa: RUF009  # frozen, so it may be shared
    window_tokens: int | None = None  # what the file says, if not given
    requantised: str | None = None
    made_from: str | None = None  # the installed model that it was converted from


def describe(card: Card, ready: Path, report: Report) -> None:
    """Completes the folder `ready`, which holds the model file; `InstallFailed` if it is no use."""
    report(Progress("tokenizer", 0, 1))
    try:
        _describe(card, ready)
    except (GgufRefused, VocabularyRefused, TemplateRefused) as error:
        raise InstallFailed(f"{card.title}: {error}") from error
    record_files(ready, {name: sha256_of(ready / name) for name in MADE})


def checked_header(gguf: Path) -> Header:
    """The file's head, with everything that a model for chats needs; `InstallFailed` if not."""
    try:
        header = read_header(gguf)
        if header.fields.get("split.count", 1) not in (0, 1):
            raise GgufRefused("it is one part of several: join them with llama-gguf-split first")
        if not header.fields.get("tokenizer.chat_template"):
            raise GgufRefused("it has no chat template: it is not a model for chats")
        header.number(f"{header.architecture}.context_length")
        vocabulary_of(header)
    except (GgufRefused, VocabularyRefused) as error:
        raise InstallFailed(f"{gguf.name} is refused: {error}") from error
    return header


def record_files(
    folder: Path,
    hashes: dict[str, str],
    others: Mapping[str, dict[str, Any]] = MappingProxyType({}),
) -> None:
    """Writes down what each file is now, beside what was written of others before.

    It is what `verify` compares with later.
    """
    files = {name: {"sha256": sha256, **stamp_of(folder / name)} for name, sha256 in hashes.items()}
    (folder / FILES).write_text(json.dumps({**others, **files}, indent=1), encoding="utf-8")


def stamp_of(file: Path) -> dict[str, int]:
    """What changes with a file, and can be read without reading it."""
    found = file.stat()
    return {"bytes": found.st_size, "mtime_ns": found.st_mtime_ns}


def _describe(card: Card, ready: Path) -> None:
    gguf, tokenizer = ready / WEIGHTS, ready / TOKENIZER
    header = read_header(gguf)
    vocabulary = vocabulary_of(header)
    write_tokenizer(vocabulary, tokenizer)
    ended = ended_child(["tertulia.replica.vocabulary", str(gguf), str(tokenizer)])
    if ended.returncode != 0:
        raise VocabularyRefused(f"our tokenizer disagrees with the engine's: {tail_of(ended)}")
    window = card.window_tokens or header.number(f"{header.architecture}.context_length")
    described: dict[str, Any] = {
        "format": FORMAT,
        **asdict(card),
        "window_tokens": window,
        **_text_of(vocabulary),
        "gguf_sha256": sha256_of(gguf),
        "gguf_bytes": gguf.stat().st_size,
        "tokenizer_sha256": sha256_of(tokenizer),
    }
    text = json.dumps(described, ensure_ascii=False, indent=1)
    (ready / DESCRIPTION).write_text(text, encoding="utf-8")
    ChatPrompts(read_description(ready))  # as the engine will


def _text_of(vocabulary: Vocabulary) -> dict[str, Any]:
    bos_id = vocabulary.bos_id
    return {
        "end_ids": list(vocabulary.end_ids),
        "eos_id": vocabulary.eos_id,
        "bos_id": bos_id,
        "adds_bos": vocabulary.adds_bos,
        "bos_text": None if bos_id is None else vocabulary.tokens[bos_id],
        "eos_text": vocabulary.tokens[vocabulary.eos_id],
        "control_ids": vocabulary.control_ids,
        "chat_template": vocabulary.chat_template,
    }
