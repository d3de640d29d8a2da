"""Between rows and values of imports, for every database.

What an import is looked up and claimed by has columns; all the rest is one JSON text, `details`.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tertulia.backends.sql.rows import Row
from tertulia.core.imports import Import, ImportState, Left
from tertulia.core.transcripts import Arrival

# Fields that are numbers and words as they are.
_PLAIN: Final = (
    "file_id",
    "file_bytes",
    "saved_epoch",
    "total",
    "read",
    "made",
    "known",
    "differing",
    "refused",
    "messages",
    "repaired",
    "read_bytes",
    "total_bytes",
)


def import_of(row: Row) -> Import:
    """A row of `imports`."""
    details = json.loads(row["details"])
    failure = details["failure"]
    return Import(
        owner=row["owner"],
        id=row["id"],
        state=ImportState(row["state"]),
        created_at=row["created_at"],
        ended_at=row["ended_at"],
        epoch=row["epoch"],
        left=tuple(Left(*left) for left in details["left"]),
        failure=(failure[0], failure[1]) if failure is not None else None,
        **{name: details[name] for name in _PLAIN},
    )


def import_values(job: Import) -> dict[str, Any]:
    """The columns of `imports` that follow from the import alone."""
    details: dict[str, Any] = {name: getattr(job, name) for name in _PLAIN}
    details["left"] = [[one.n, one.source_id, one.code, one.message] for one in job.left]
    details["failure"] = job.failure
    return {
        "owner": job.owner,
        "id": job.id,
        "state": job.state.value,
        "created_at": job.created_at,
        "ended_at": job.ended_at,
        "epoch": job.epoch,
        "details": json.dumps(details),
    }


def arrival_values(arrival: Arrival, now: float | None) -> dict[str, Any]:
    """The columns of `conversations` for one that comes in."""
    conversation = arrival.conversation
    return {
        "owner": conversation.owner,
        "id": conversation.id,
        "key": arrival.key,
        "same_as": arrival.same_as,
        "now": now,
        "title": conversation.title,
        "prompt_version": conversation.prompt_version,
        "created_at": conversation.created_at,
        "updated_at": conversation.updated_at,
        "pinned": int(conversation.pinned),
        "archived": conversation.archived,
        "model": conversation.model,
        "head_message_id": conversation.head_message_id,
    }
