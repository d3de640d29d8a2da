"""Batches in SQLite: as people see them, and as work. Every call is one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from tertulia.backends.sql import statements
from tertulia.backends.sql.batch_rows import (
    batch_of,
    batch_values,
    line_of,
    line_values,
    open_line_of,
)
from tertulia.backends.sql.pages import page_by_id
from tertulia.backends.sql.rows import json_list
from tertulia.backends.sqlite.files import append
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.batches import (
    BATCH_TRANSITIONS,
    Batch,
    BatchLine,
    NewBatch,
    Saved,
    TooManyBatches,
    Work,
    moved,
    started,
)
from tertulia.core.types import KeyReused, Page
from tertulia.ports import Clock

SQL: Final = statements("sqlite", "batches")

Database = sqlite3.Connection


class SqliteBatches:
    """The `Batches` port."""

    def __init__(self, writer: Writer, readers: Readers, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock

    async def create(self, new: NewBatch, *, limit: int) -> Batch | TooManyBatches | KeyReused:
        """A new batch, or the one that was made with this key."""
        now = self._clock.now()

        def step(database: Database) -> Batch | TooManyBatches | KeyReused:
            values = {"owner": new.owner, "key": new.key}
            known = database.execute(SQL["by_key"], values).fetchone()
            if known is not None:
                return batch_of(known) if known["body_sha"] == new.body_sha else KeyReused()
            if database.execute(SQL["active"], values).fetchone()[0] >= limit:
                return TooManyBatches(limit)
            made = started(new, now)
            written = {**batch_values(made), "key": new.key, "body_sha": new.body_sha}
            database.execute(SQL["add"], written)
            return made

        return await self._writer.put(step)

    async def find(self, owner: str, batch_id: str) -> Batch | None:
        """The owner's batch."""
        return await self._readers.ask(lambda database: _find(database, owner, batch_id))

    async def list(self, owner: str, *, after: str | None, limit: int) -> Page[Batch]:
        """One page, newest first."""
        values = {"owner": owner, "after": after, "rows": limit + 1}
        rows = await self._readers.ask(
            lambda database: database.execute(SQL["page"], values).fetchall()
        )
        return page_by_id(rows, limit, batch_of)

    async def cancel(self, owner: str, batch_id: str) -> Batch | None:
        """Cancelling, if it may be; else as it is."""
        now = self._clock.now()

        def step(database: Database) -> Batch | None:
            batch = _find(database, owner, batch_id)
            if batch is None or "cancel" not in BATCH_TRANSITIONS[batch.status]:
                return batch
            batch = replace(moved(batch, "cancel", now), epoch=batch.epoch + 1)
            database.execute(SQL["cancel"], batch_values(batch))
            return batch

        return await self._writer.put(step)

    async def delete(self, owner: str) -> None:
        """All of the owner's."""
        await self._writer.put(lambda database: _run(database, "delete", {"owner": owner}))


class SqliteBatchWork:
    """The `BatchWork` port."""

    def __init__(self, writer: Writer, readers: Readers, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock

    async def claim(self, *, lease_s: float) -> Work | None:
        """The batch that waits longest, at its next epoch."""
        now = self._clock.now()

        def step(database: Database) -> Work | None:
            values = {"now": now, "until": now + lease_s}
            taken = database.execute(SQL["claim"], values).fetchone()
            if taken is None:
                return None
            of_batch = {"owner": taken["owner"], "id": taken["id"]}
            around = database.execute(SQL["around"], of_batch).fetchone()
            return Work(
                batch=batch_of(taken),
                now=now,
                open=tuple(map(open_line_of, database.execute(SQL["open_lines"], of_batch))),
                open_elsewhere=around["open_elsewhere"],
                open_of_owner=around["open_of_owner"],
                batches=around["batches"],
                of_owner=around["of_owner"],
            )

        return await self._writer.put(step)

    async def taken(self, owner: str, batch_id: str, custom_ids: Sequence[str]) -> frozenset[str]:
        """Which of these the batch has."""
        values = {"owner": owner, "id": batch_id, "custom_ids": json_list(custom_ids)}
        rows = await self._readers.ask(
            lambda database: database.execute(SQL["taken"], values).fetchall()
        )
        return frozenset(row["custom_id"] for row in rows)

    async def lines(
        self, owner: str, batch_id: str, *, after: int, limit: int
    ) -> Sequence[BatchLine]:
        """The next lines after one."""
        values = {"owner": owner, "id": batch_id, "after": after, "rows": limit}
        rows = await self._readers.ask(
            lambda database: database.execute(SQL["lines"], values).fetchall()
        )
        return tuple(line_of(row) for row in rows)

    async def save(self, saved: Saved) -> bool:
        """One transaction, under the epoch of the batch."""
        batch, now = saved.batch, self._clock.now()
        values = {
            **batch_values(batch),
            "releases": saved.then == "release",
            "due_at": saved.due_at,
            "now": now,
        }

        def step(database: Database) -> bool:
            if database.execute(SQL["save"], values).rowcount == 0:
                return False
            lines = [line_values(batch, line) for line in saved.lines]
            database.executemany(SQL["put_line"], lines)
            for file, part in saved.parts:
                append(database, file, part, now)
            return True

        return await self._writer.put(step)

    async def sweep(self, *, rows: int, kept_s: float) -> int:
        """Removes lines that nobody needs any more, and then their batch if it is old."""
        old = self._clock.now() - kept_s

        def step(database: Database) -> int:
            lines = database.execute(SQL["delete_lines"], {"rows": rows}).fetchall()
            database.executemany(SQL["loosen"], [dict(line) for line in lines])
            removed = len(lines)
            _run(database, "emptied", {})
            gone = database.execute(SQL["forget"], {"old": old}).rowcount
            if removed or gone:
                self._writer.scrub()
            return removed

        return await self._writer.put(step)


def _find(database: Database, owner: str, batch_id: str) -> Batch | None:
    row = database.execute(SQL["find"], {"owner": owner, "id": batch_id}).fetchone()
    return batch_of(row) if row is not None else None


def _run(database: Database, statement: str, values: dict[str, Any]) -> None:
    database.execute(SQL[statement], values)
