"""Turns of no conversation in SQLite: forgotten some time after their end, or when asked."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from tertulia.backends.sql import statements
from tertulia.backends.sqlite.deletions import order
from tertulia.backends.sqlite.log import SqliteLog, bury_logs
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.deletions import DeletionKind
from tertulia.core.types import Gone
from tertulia.ports import Clock

SQL: Final = statements("sqlite", "loose")

Database = sqlite3.Connection


class SqliteLooseTurns:
    """The `LooseTurns` port."""

    def __init__(self, writer: Writer, log: SqliteLog, clock: Clock) -> None:
        self._writer = writer
        self._log = log
        self._clock = clock

    async def forget(self, *, ended_s: float, limit: int) -> Sequence[Gone]:
        """The oldest that ended so long ago."""
        now = self._clock.now()
        values = {"moment": now - ended_s, "rows": limit}
        return await self._writer.put(partial(self._remove, "ended", values, now), self._hush)

    async def delete(self, owner: str, reply_id: str) -> Gone | None:
        """One that has ended, at once."""
        now = self._clock.now()
        values = {"owner": owner, "reply_id": reply_id}

        def step(database: Database) -> Sequence[Gone]:
            gone = self._remove("ended_one", values, now, database)
            for one in gone:
                if one.is_last:
                    order(database, owner, one.thread, DeletionKind.CALLS, now)
            return gone

        gone = await self._writer.put(step, self._hush)
        return gone[0] if gone else None

    def _remove(
        self, statement: str, values: dict[str, Any], now: float, database: Database
    ) -> Sequence[Gone]:
        """Within the writer's step."""
        gone: list[Gone] = []
        for row in database.execute(SQL[statement], values).fetchall():
            database.execute(SQL["remove"], dict(row))
            is_last = database.execute(SQL["goes_on"], dict(row)).fetchone() is None
            gone.append(Gone(row["owner"], row["reply_id"], row["thread"], is_last))
        if gone:
            bury_logs(database, [one.reply_id for one in gone], now)
            self._writer.scrub()
        return tuple(gone)

    def _hush(self, gone: Sequence[Gone]) -> None:
        self._log.forget([one.reply_id for one in gone])
