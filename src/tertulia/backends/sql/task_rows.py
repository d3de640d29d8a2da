"""Between rows and values of tasks and summaries, in both directions, for every database."""

from __future__ import annotations

from typing import Any

from tertulia.backends.sql.rows import Row
from tertulia.core.remembering import Summary, Task


def task_of(row: Row) -> Task:
    """A claimed row of `tasks`."""
    return Task(
        owner=row["owner"],
        conversation_id=row["conversation_id"],
        kind=row["kind"],
        upto=row["upto"],
        room_tokens=row["room_tokens"],
        tries=row["tries"],
        epoch=row["epoch"],
    )


def task_values(task: Task) -> dict[str, Any]:
    """What names a task and its claim."""
    return {
        "owner": task.owner,
        "conversation_id": task.conversation_id,
        "kind": task.kind,
        "upto": task.upto,
        "epoch": task.epoch,
    }


def summary_of(row: Row) -> Summary:
    """A row of `summaries`."""
    return Summary(
        id=row["id"],
        upto=row["upto"],
        previous_id=row["previous_id"],
        text=row["text"],
        tokens=row["tokens"],
        tokenizer=row["tokenizer"],
        model=row["model"],
        version=row["version"],
    )


def summary_values(summary: Summary) -> dict[str, Any]:
    """The columns of `summaries` that are its own."""
    return {
        "id": summary.id,
        "upto": summary.upto,
        "previous_id": summary.previous_id,
        "text": summary.text,
        "tokens": summary.tokens,
        "tokenizer": summary.tokenizer,
        "model": summary.model,
        "version": summary.version,
    }
