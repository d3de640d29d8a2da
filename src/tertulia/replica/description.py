"""An installed model's description: what the engine and `tertulia models` need to know about it.

It must never guess: a missing or strange field is an error that names the file.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tertulia.description import (
    DescriptionUnreadable,
    TextDescription,
    read_fields,
    text_fields,
    unreadable,
)
from tertulia.replica.catalogue import CATALOGUE, DefaultSampling
from tertulia.replica.repetition import RepetitionRule

__all__ = ["Description", "DescriptionUnreadable", "read_description"]


@dataclass(frozen=True)
class Description(TextDescription):
    """What the engine needs to know about an installed model."""

    served_id: str
    licence: str
    end_ids: tuple[int, ...]
    sampling: DefaultSampling


def read_description(folder: Path) -> Description:
    """The description of the model installed in `folder`."""
    fields = read_fields(folder)
    try:
        return Description(
            **text_fields(fields),
            served_id=str(fields["served_id"]),
            licence=str(fields["licence"]),
            end_ids=tuple(int(token) for token in fields["end_ids"]),
            sampling=_sampling(fields),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise unreadable(folder, error) from error


def _sampling(fields: dict[str, Any]) -> DefaultSampling:
    """The catalogue's, where it knows the file: what the installer wrote down may be older."""
    for model in CATALOGUE:
        if model.sha256 == fields.get("source_sha256"):
            return model.sampling
    written = dict(fields["sampling"])
    rule = written.pop("repetition", None)
    return DefaultSampling(**written, repetition=rule and RepetitionRule(**rule))
