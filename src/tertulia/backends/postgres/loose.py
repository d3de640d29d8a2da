"""Turns of no conversation in Postgres: forgotten some time after their end, or when asked."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from tertulia.backends.postgres.database import Database
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.sql.rows import turn_of
from tertulia.core.types import Turn
from tertulia.ports import Log, StoreUnavailable

SQL: Final = postgres_statements("loose")
TURNS: Final = postgres_statements("turns")
CONVERSATIONS: Final = postgres_statements("conversations")


class PostgresLooseTurns:
    """The `LooseTurns` port. It buries the logs of what it forgets."""

    def __init__(self, database: Database, log: Log) -> None:
        self._database = database
        self._log = log

    async def forget(self, *, ended_s: float, limit: int) -> Sequence[Turn]:
        """The oldest that ended so long ago, as they were."""
        values = {"now": self._database.now(), "ended_s": ended_s, "rows": limit}
        ended = await self._database.rows(SQL["ended"], values)
        for_good = [row for row in ended if not row["may_run_again"]]
        gone = await self._remove_now([(row["owner"], row["reply_id"]) for row in for_good])
        for row in ended:
            if row["may_run_again"]:
                gone += await self._remove_at_the_door(row["owner"], row["reply_id"])
        await self._bury(gone)
        return tuple(sorted(gone, key=lambda turn: (turn.finished_at or 0.0, turn.reply_id)))

    async def delete(self, owner: str, reply_id: str) -> Turn | None:
        """One that has ended, at once."""
        gone = await self._remove_at_the_door(owner, reply_id)
        await self._bury(gone)
        return gone[0] if gone else None

    async def _remove_now(self, ids: Sequence[tuple[str, str]]) -> list[Turn]:
        """Takes turns away that never change again."""
        if not ids:
            return []
        rows = await self._database.rows(SQL["remove"], self._values(ids))
        return [turn_of(row) for row in rows]

    async def _remove_at_the_door(self, owner: str, reply_id: str) -> list[Turn]:
        """The same for one that may be run again: nobody begins that meanwhile."""
        async with self._database.transaction() as step:
            await step.row(TURNS["pass"], {"owner": owner})
            rows = await step.rows(SQL["remove"], self._values([(owner, reply_id)]))
        return [turn_of(row) for row in rows]

    def _values(self, ids: Sequence[tuple[str, str]]) -> dict[str, Any]:
        return {
            "owners": [owner for owner, _ in ids],
            "reply_ids": [reply_id for _, reply_id in ids],
            "now": self._database.now(),
        }

    async def _bury(self, gone: Sequence[Turn]) -> None:
        if not gone:
            return
        values = self._values([(turn.owner, turn.reply_id) for turn in gone])
        with suppress(StoreUnavailable):  # a chore buries what is left
            await self._log.bury(values["reply_ids"])
            await self._database.row(CONVERSATIONS["buried"], values)
