"""Reads an installed model's `model.json`: what it is called and how its tokens and turns look.

It must never guess: a missing or strange field is an error that names the file.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tertulia.replica.catalogue import CATALOGUE, DefaultSampling
from tertulia.replica.repetition import RepetitionRule


class DescriptionUnreadable(RuntimeError):
    """The folder holds no complete model."""


@dataclass(frozen=True)
class Description:
    """What the engine needs to know about an installed model."""

    served_id: str
    licence: str
    window_tokens: int
    end_ids: tuple[int, ...]
    control_ids: dict[str, int]
    chat_template: str
    bos_text: str
    eos_text: str
    sampling: DefaultSampling


def read_description(folder: Path) -> Description:
    """The description of the model installed in `folder`."""
    path = folder / "model.json"
    try:
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Description(
            served_id=str(fields["served_id"]),
            licence=str(fields["licence"]),
            window_tokens=int(fields["window_tokens"]),
            end_ids=tuple(int(token) for token in fields["end_ids"]),
            control_ids={str(text): int(token) for text, token in fields["control_ids"].items()},
            chat_template=str(fields["chat_template"]),
            bos_text=str(fields["bos_text"] or ""),
            eos_text=str(fields["eos_text"]),
            sampling=_sampling(fields),
        )
    except FileNotFoundError as error:
        raise DescriptionUnreadable(f"no model is installed in {folder}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DescriptionUnreadable(f"{path} is not a model's description: {error!r}") from error


def _sampling(fields: dict[str, Any]) -> DefaultSampling:
    """The catalogue's, where it knows the file: what the installer wrote down may be older."""
    for model in CATALOGUE:
        if model.sha256 == fields.get("source_sha256"):
            return model.sampling
    written = dict(fields["sampling"])
    rule = written.pop("repetition", None)
    return DefaultSampling(**written, repetition=rule and RepetitionRule(**rule))
