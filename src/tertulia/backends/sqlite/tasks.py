"""Tasks and summaries in SQLite: what is to be made of conversations, and what was."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from tertulia.backends.sql import statements
from tertulia.backends.sql.rows import json_list
from tertulia.backends.sql.task_rows import summary_of, summary_values, task_of, task_values
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.remembering import TRIES, Made, Summary, Task, TaskKind, Title
from tertulia.ports import Clock

SQL: Final = statements("sqlite", "tasks")
SUMMARIES: Final = statements("sqlite", "summaries")

Database = sqlite3.Connection


class SqliteTasks:
    """The `Tasks` port."""

    def __init__(self, writer: Writer, readers: Readers, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock

    async def want(
        self, owner: str, conversation_id: str, kind: TaskKind, upto: str, *, room_tokens: int
    ) -> bool:
        """Notes a task once."""
        values = {
            "owner": owner,
            "conversation_id": conversation_id,
            "kind": kind,
            "upto": upto,
            "room_tokens": room_tokens,
            "now": self._clock.now(),
        }
        return await self._writer.put(lambda database: _run(database, "want", values))

    async def claim(self, *, lease_s: float) -> Task | None:
        """The task that is due longest, at its next epoch."""
        now = self._clock.now()
        values = {"now": now, "until": now + lease_s, "tries": TRIES}
        row = await self._writer.put(
            lambda database: database.execute(SQL["claim"], values).fetchone()
        )
        return task_of(row) if row is not None else None

    async def renew(self, task: Task, *, lease_s: float) -> bool:
        """Puts the next claim off."""
        return await self._put_off(task, self._clock.now() + lease_s)

    async def finish(self, task: Task, made: Made) -> bool:
        """The task goes, what was made comes."""
        values = {**task_values(task), "now": self._clock.now()}

        def step(database: Database) -> bool:
            if not _run(database, "take_away", values):
                return False
            if isinstance(made, Title):
                database.execute(SQL["title"], {**values, "title": made.text})
            else:
                database.execute(SUMMARIES["put"], {**values, **summary_values(made)})
            return True

        return await self._writer.put(step)

    async def fail(self, task: Task, *, due_in_s: float | None) -> bool:
        """Another time, or never."""
        return await self._put_off(task, None if due_in_s is None else self._clock.now() + due_in_s)

    async def _put_off(self, task: Task, due_at: float | None) -> bool:
        values = {**task_values(task), "due_at": due_at}
        return await self._writer.put(lambda database: _run(database, "put_off", values))


class SqliteSummaries:
    """The `Summaries` port."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def latest(self, owner: str, conversation_id: str, upto: Sequence[str]) -> Summary | None:
        """That of the last message that has one."""
        values = {"owner": owner, "conversation_id": conversation_id, "upto": json_list(upto)}
        return await self._one("latest", values)

    async def find(self, owner: str, conversation_id: str, summary_id: str) -> Summary | None:
        """The one of this id."""
        values = {"owner": owner, "conversation_id": conversation_id, "id": summary_id}
        return await self._one("find", values)

    async def _one(self, statement: str, values: dict[str, Any]) -> Summary | None:
        row = await self._readers.row(SUMMARIES[statement], values)
        return summary_of(row) if row is not None else None


def _run(database: Database, statement: str, values: dict[str, Any]) -> bool:
    """Whether the statement changed anything."""
    return database.execute(SQL[statement], values).rowcount > 0
