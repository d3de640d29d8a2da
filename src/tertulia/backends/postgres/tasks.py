"""Tasks and summaries in Postgres: every call is one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tertulia.backends.postgres.database import Database
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.sql.task_rows import summary_of, summary_values, task_of, task_values
from tertulia.core.remembering import TRIES, Made, Summary, Task, TaskKind, Title

SQL: Final = postgres_statements("tasks")
SUMMARIES: Final = postgres_statements("summaries")


class PostgresTasks:
    """The `Tasks` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

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
        }
        return await self._did("want", values)

    async def claim(self, *, lease_s: float) -> Task | None:
        """The task that is due longest, at its next epoch."""
        values = {"lease_s": lease_s, "tries": TRIES, "now": self._database.now()}
        row = await self._database.row(SQL["claim"], values)
        return task_of(row) if row is not None else None

    async def renew(self, task: Task, *, lease_s: float) -> bool:
        """Puts the next claim off."""
        return await self._did("put_off", {**task_values(task), "due_in_s": lease_s})

    async def finish(self, task: Task, made: Made) -> bool:
        """The task goes, what was made comes."""
        values = task_values(task)
        if isinstance(made, Title):
            title = {"title": made.text, "folded": made.text.casefold()}
            return await self._did("title", {**values, **title})
        return await self._did("summary", {**values, **summary_values(made)})

    async def fail(self, task: Task, *, due_in_s: float | None) -> bool:
        """Another time, or never."""
        return await self._did("put_off", {**task_values(task), "due_in_s": due_in_s})

    async def _did(self, statement: str, values: Mapping[str, Any]) -> bool:
        """Whether the statement changed anything."""
        row = await self._database.row(SQL[statement], {**values, "now": self._database.now()})
        return row is not None


class PostgresSummaries:
    """The `Summaries` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def latest(self, owner: str, conversation_id: str, upto: Sequence[str]) -> Summary | None:
        """That of the last message that has one."""
        values = {"owner": owner, "conversation_id": conversation_id, "upto": list(upto)}
        return await self._one("latest", values)

    async def find(self, owner: str, conversation_id: str, summary_id: str) -> Summary | None:
        """The one of this id."""
        values = {"owner": owner, "conversation_id": conversation_id, "id": summary_id}
        return await self._one("find", values)

    async def _one(self, statement: str, values: Mapping[str, Any]) -> Summary | None:
        row = await self._database.row(SUMMARIES[statement], values)
        return summary_of(row) if row is not None else None
