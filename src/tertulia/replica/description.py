"""An installed model's description: what the engine and `tertulia models` need to know about it.

It must never guess: a missing or strange field is an error that names the file.
"""

from dataclasses import dataclass
from pathlib import Path

from tertulia.description import (
    DescriptionUnreadable,
    TextDescription,
    read_fields,
    text_fields,
    unreadable,
)
from tertulia.replica.catalogue import DefaultSampling

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
            sampling=DefaultSampling(**fields["sampling"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise unreadable(folder, error) from error
