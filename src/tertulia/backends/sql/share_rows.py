"""Rows of `shares` as values, for every SQL store alike."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tertulia.core.shares import Share, SharedMessage, SharedPage, Snapshot, shared_page
from tertulia.core.types import Status


def share_of(row: Any) -> Share:
    """A row of `shares`. What is left out is a list, or JSON where a store has no lists."""
    left_out = row["left_out"]
    ids = json.loads(left_out) if isinstance(left_out, str) else left_out
    return Share(
        owner=row["owner"],
        id=row["id"],
        conversation_id=row["conversation_id"],
        title=row["title"],
        snapshot=Snapshot(row["leaf_id"], row["path_messages"], tuple(ids)),
        created_at=row["created_at"],
    )


def share_page_of(rows: Sequence[Any], *, limit: int) -> SharedPage | None:
    """The rows of `shown`: one for each message, or one without; none where there is no link."""
    if not rows:
        return None
    found = [_message_of(row) for row in rows if row["place"] is not None]
    return shared_page(rows[0]["title"], rows[0]["created_at"], found, limit=limit)


def _message_of(row: Any) -> SharedMessage:
    status = Status(row["status"])
    return SharedMessage(row["place"], row["role"], row["content"], row["model"], status)
