"""Batches in Postgres: as people see them, and as work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from tertulia.backends.postgres.database import Database
from tertulia.backends.postgres.files import append
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.sql.batch_rows import (
    batch_of,
    batch_values,
    line_of,
    line_values,
    open_line_of,
)
from tertulia.backends.sql.pages import page_by_id
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

SQL: Final = postgres_statements("batches")
TURNS: Final = postgres_statements("turns")

# The columns of a line that are not those of its batch.
_OF_LINE: Final = (
    "n",
    "number",
    "custom_id",
    "first_byte",
    "size",
    "state",
    "tries",
    "retry_at",
    "error",
    "turn_key",
)


class PostgresBatches:
    """The `Batches` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, new: NewBatch, *, limit: int) -> Batch | TooManyBatches | KeyReused:
        """A new batch, or the one that was made with this key."""
        values = {"owner": new.owner, "key": new.key, "now": self._database.now()}
        async with self._database.transaction() as step:
            await step.row(TURNS["pass"], values)  # one batch of this owner at a time
            known = await step.row(SQL["by_key"], values)
            if known is not None:
                return batch_of(known) if known["body_sha"] == new.body_sha else KeyReused()
            active = await step.row(SQL["active"], values)
            if active["batches"] >= limit:
                return TooManyBatches(limit)
            made = started(new, active["now"])
            written = {**batch_values(made), "key": new.key, "body_sha": new.body_sha}
            await step.row(SQL["add"], written)
            return made

    async def find(self, owner: str, batch_id: str) -> Batch | None:
        """The owner's batch."""
        row = await self._database.row(SQL["find"], {"owner": owner, "id": batch_id})
        return batch_of(row) if row is not None else None

    async def list(self, owner: str, *, after: str | None, limit: int) -> Page[Batch]:
        """One page, newest first."""
        values = {"owner": owner, "after": after, "rows": limit + 1}
        return page_by_id(await self._database.rows(SQL["page"], values), limit, batch_of)

    async def cancel(self, owner: str, batch_id: str) -> Batch | None:
        """Cancelling, if it may be; else as it is."""
        values = {"owner": owner, "id": batch_id, "now": self._database.now()}
        async with self._database.transaction() as step:
            row = await step.row(SQL["find_to_cancel"], values)
            if row is None:
                return None
            batch = batch_of(row)
            if "cancel" in BATCH_TRANSITIONS[batch.status]:
                batch = replace(moved(batch, "cancel", row["now"]), epoch=batch.epoch + 1)
                await step.row(SQL["cancel"], batch_values(batch))
            return batch

    async def delete(self, owner: str) -> None:
        """All of the owner's."""
        await self._database.row(SQL["delete"], {"owner": owner})


class PostgresBatchWork:
    """The `BatchWork` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, *, lease_s: float) -> Work | None:
        """The batch that waits longest, at its next epoch."""
        values = {"now": self._database.now(), "lease_s": lease_s}
        taken = await self._database.row(SQL["claim"], values)
        if taken is None:
            return None
        of_batch = {"owner": taken["owner"], "id": taken["id"]}
        around = await self._database.row(SQL["around"], of_batch)
        return Work(
            batch=batch_of(taken),
            now=taken["now"],
            open=tuple(map(open_line_of, await self._database.rows(SQL["open_lines"], of_batch))),
            open_elsewhere=around["open_elsewhere"],
            open_of_owner=around["open_of_owner"],
            batches=around["batches"],
            of_owner=around["of_owner"],
        )

    async def taken(self, owner: str, batch_id: str, custom_ids: Sequence[str]) -> frozenset[str]:
        """Which of these the batch has."""
        values = {"owner": owner, "id": batch_id, "custom_ids": list(custom_ids)}
        rows = await self._database.rows(SQL["taken"], values)
        return frozenset(row["custom_id"] for row in rows)

    async def lines(
        self, owner: str, batch_id: str, *, after: int, limit: int
    ) -> Sequence[BatchLine]:
        """The next lines after one."""
        values = {"owner": owner, "id": batch_id, "after": after, "rows": limit}
        return tuple(line_of(row) for row in await self._database.rows(SQL["lines"], values))

    async def save(self, saved: Saved) -> bool:
        """One transaction, under the epoch of the batch."""
        batch, now = saved.batch, self._database.now()
        values = {
            **batch_values(batch),
            "releases": saved.then == "release",
            "due_at": saved.due_at,
            "now": now,
        }
        async with self._database.transaction() as step:
            if await step.row(SQL["save"], values) is None:
                return False
            if saved.lines:
                await step.row(SQL["put_lines"], _columns(batch, saved.lines))
            for file, part in saved.parts:
                await append(step, file, part, now)
            return True

    async def sweep(self, *, rows: int, kept_s: float) -> int:
        """Removes lines that nobody needs any more, and then their batch if it is old."""
        values = {"now": self._database.now(), "rows": rows, "kept_s": kept_s}
        removed = await self._database.row(SQL["delete_lines"], values)
        await self._database.row(SQL["emptied"], values)
        await self._database.row(SQL["forget"], values)
        return int(removed["lines"])


def _columns(batch: Batch, lines: Sequence[BatchLine]) -> dict[str, Any]:
    """The lines by column, for one statement."""
    rows = [line_values(batch, line) for line in lines]
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in _OF_LINE}
    return {"owner": batch.owner, "batch_id": batch.id, **columns}
