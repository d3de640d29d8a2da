"""Reads the part of a model's `model.json` that both sides of a replica need: how its text looks.

It must never guess: a missing or strange field is an error that names the file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DESCRIPTION = "model.json"
# Control tokens and a chat template take some 20 kB; it is a person's file in some folders.
DESCRIPTION_BYTES = 4_000_000


class DescriptionUnreadable(RuntimeError):
    """The folder holds no complete model."""


@dataclass(frozen=True)
class TextDescription:
    """How a model's tokens and turns look."""

    window_tokens: int
    control_ids: dict[str, int]
    chat_template: str
    bos_text: str
    eos_text: str
    adds_bos: bool
    tokenizer_sha256: str


def read_text_description(folder: Path) -> TextDescription:
    """The part of the description in `folder` that prompts are made with."""
    fields = read_fields(folder)
    try:
        return TextDescription(**text_fields(fields))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise unreadable(folder, error) from error


def read_fields(folder: Path) -> dict[str, Any]:
    """The whole description as it is written."""
    try:
        with (folder / DESCRIPTION).open("rb") as file:
            fields = json.loads(file.read(DESCRIPTION_BYTES))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DescriptionUnreadable(
            f"no model is installed in {folder}: it has no {DESCRIPTION}"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable(folder, error) from error
    if not isinstance(fields, dict):
        raise unreadable(folder, TypeError("it is not an object"))
    return fields


def text_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a `TextDescription`; raises what a strange field raises."""
    return {
        "window_tokens": int(fields["window_tokens"]),
        "control_ids": {str(text): int(token) for text, token in fields["control_ids"].items()},
        "chat_template": str(fields["chat_template"]),
        "bos_text": str(fields["bos_text"] or ""),
        "eos_text": str(fields["eos_text"] or ""),
        "adds_bos": bool(fields["adds_bos"]),
        "tokenizer_sha256": str(fields["tokenizer_sha256"]),
    }


def unreadable(folder: Path, error: Exception) -> DescriptionUnreadable:
    """The error for a description that is there and can't be used."""
    return DescriptionUnreadable(f"{folder / DESCRIPTION} is not a model's description: {error!r}")
