"""Turns of no conversation in SQLite: forgotten some time after their end, or when asked."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from tertulia.backends.sql import statements
from tertulia.backends.sql.rows import turn_of
from tertulia.backends.sqlite.log import SqliteLog, bury_logs
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.types import Turn
from tertulia.ports import Clock

SQL: Final = statements("sqlite", "loose")

Database = sqlite3.Connection


class SqliteLooseTurns:
    """The `LooseTurns` port."""

    def __init__(self, writer: Writer, log: SqliteLog, clock: Clock) -> None:
        self._writer = writer
        self._log = log
        self._clock = clock

    async def forget(self, *, ended_s: float, limit: int) -> Sequence[Turn]:
        """The oldest that ended so long ago, as they were."""
        values = {"moment": self._clock.now() - ended_s, "rows": limit}
        return await self._remove("ended", values)

    async def delete(self, owner: str, reply_id: str) -> Turn | None:
        """One that has ended, at once."""
        gone = await self._remove("ended_one", {"owner": owner, "reply_id": reply_id})
        return gone[0] if gone else None

    async def _remove(self, statement: str, values: dict[str, Any]) -> Sequence[Turn]:
        now = self._clock.now()

        def step(database: Database) -> Sequence[Turn]:
            gone = tuple(map(turn_of, database.execute(SQL[statement], values)))
            if gone:
                bury_logs(database, [turn.reply_id for turn in gone], now)
                database.executemany(SQL["remove"], [(turn.reply_id,) for turn in gone])
                self._writer.scrub()
            return gone

        return await self._writer.put(
            step, lambda gone: self._log.forget([turn.reply_id for turn in gone])
        )
