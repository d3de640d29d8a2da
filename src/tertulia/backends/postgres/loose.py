"""Turns of no conversation in Postgres: forgotten some time after their end, or when asked."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from tertulia.backends.postgres.database import Database, Transaction
from tertulia.backends.postgres.deletions import order
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.core.deletions import DeletionKind
from tertulia.core.types import Gone
from tertulia.ports import Log, StoreUnavailable

SQL: Final = postgres_statements("loose")
TURNS: Final = postgres_statements("turns")
CONVERSATIONS: Final = postgres_statements("conversations")


class PostgresLooseTurns:
    """The `LooseTurns` port. It buries the logs of what it forgets."""

    def __init__(self, database: Database, log: Log) -> None:
        self._database = database
        self._log = log

    async def forget(self, *, ended_s: float, limit: int) -> Sequence[Gone]:
        """The oldest that ended so long ago."""
        values = {"now": self._database.now(), "ended_s": ended_s, "rows": limit}
        ended = await self._database.rows(SQL["ended"], values)
        for_good = [(row["owner"], row["reply_id"]) for row in ended if not row["may_run_again"]]
        rows = await self._database.rows(SQL["remove"], self._values(for_good))
        for row in ended:
            if row["may_run_again"]:
                async with self._database.transaction() as step:
                    rows += await self._remove_at_the_door(step, row["owner"], row["reply_id"])
        rows.sort(key=lambda row: (row["finished_at"], row["reply_id"]))
        going_on = await self._database.rows(SQL["going_on"], _threads(rows))
        await self._bury(rows)
        return _named(rows, going_on)

    async def delete(self, owner: str, reply_id: str) -> Gone | None:
        """One that has ended, at once."""
        async with self._database.transaction() as step:
            rows = await self._remove_at_the_door(step, owner, reply_id)
            gone = _named(rows, await step.rows(SQL["going_on"], _threads(rows)))
            for one in gone:
                if one.is_last:
                    now = self._database.now()
                    await order(step, owner, one.thread, DeletionKind.CALLS, now)
        await self._bury(rows)
        return gone[0] if gone else None

    async def _remove_at_the_door(
        self, step: Transaction, owner: str, reply_id: str
    ) -> Sequence[Any]:
        """Takes one away that may be run again: nobody begins that meanwhile."""
        await step.row(TURNS["pass"], {"owner": owner})
        return await step.rows(SQL["remove"], self._values([(owner, reply_id)]))

    def _values(self, ids: Sequence[tuple[str, str]]) -> dict[str, Any]:
        return {
            "owners": [owner for owner, _ in ids],
            "reply_ids": [reply_id for _, reply_id in ids],
            "now": self._database.now(),
        }

    async def _bury(self, rows: Sequence[Any]) -> None:
        if not rows:
            return
        values = self._values([(row["owner"], row["reply_id"]) for row in rows])
        with suppress(StoreUnavailable):  # a chore buries what is left
            await self._log.bury(values["reply_ids"])
            await self._database.row(CONVERSATIONS["buried"], values)


def _threads(rows: Sequence[Any]) -> dict[str, list[str]]:
    return {
        "owners": [row["owner"] for row in rows],
        "threads": [row["thread"] for row in rows],
    }


def _named(rows: Sequence[Any], going_on: Sequence[Any]) -> tuple[Gone, ...]:
    """These, each with whether it is the last of its thread."""
    last = {(row["owner"], row["thread"]): row["reply_id"] for row in rows}
    for row in going_on:
        last.pop((row["owner"], row["thread"]), None)
    return tuple(
        Gone(
            row["owner"],
            row["reply_id"],
            row["thread"],
            last.get((row["owner"], row["thread"])) == row["reply_id"],
        )
        for row in rows
    )
