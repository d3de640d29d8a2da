"""Between rows and values of orders to delete, for every database. What was reached is one JSON
text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tertulia.backends.cursors import read_deletion_cursor, write_deletion_cursor
from tertulia.backends.sql.rows import Row
from tertulia.core.deletions import Deletion, DeletionKind, Reach, ordered
from tertulia.core.types import Page

# After every order that there is.
_AFTER_ALL = (1e15, "", "")


def deletion_of(row: Row) -> Deletion:
    """A row of `deletions`."""
    reached = json.loads(row["reached"])
    return Deletion(
        owner=row["owner"],
        target=row["target"],
        kind=DeletionKind(row["kind"]),
        requested_at=row["requested_at"],
        reached={name: Reach(how, at) for name, (how, at) in reached.items()},
        looks=row["looks"],
        done_at=row["done_at"],
    )


def order_values(owner: str, target: str, kind: DeletionKind, now: float) -> dict[str, Any]:
    """The columns of a new order."""
    return deletion_values(ordered(owner, target, kind, now))


def deletion_values(deletion: Deletion) -> dict[str, Any]:
    """The columns of `deletions`."""
    return {
        "owner": deletion.owner,
        "target": deletion.target,
        "kind": deletion.kind.value,
        "requested_at": deletion.requested_at,
        "reached": json.dumps({name: list(reach) for name, reach in deletion.reached.items()}),
        "looks": deletion.looks,
        "is_over": deletion.done_at is not None,
    }


def deletions_wanted(*, cursor: str | None, limit: int) -> dict[str, Any]:
    """The values of the statement that lists orders."""
    requested_at, owner, target = _AFTER_ALL if cursor is None else read_deletion_cursor(cursor)
    return {"requested_at": requested_at, "owner": owner, "target": target, "rows": limit + 1}


def deletions_page(rows: Sequence[Row], limit: int) -> Page[Deletion]:
    """The page of what that statement found."""
    items = tuple(deletion_of(row) for row in rows[:limit])
    if len(rows) <= limit or not items:
        return Page(items, None)
    last = items[-1]
    return Page(items, write_deletion_cursor(last.requested_at, last.owner, last.target))
