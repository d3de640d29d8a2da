"""Export and import in SQLite. Every call is one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tertulia.backends.sql import statements
from tertulia.backends.sql.import_rows import (
    arrival_values,
    import_of,
    import_values,
)
from tertulia.backends.sql.pages import page_by_id
from tertulia.backends.sql.rows import conversation_of, day_use_of, message_of, message_values
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.imports import (
    IMPORT_TRANSITIONS,
    Import,
    NewImport,
    Progress,
    Taken,
    TooManyImports,
    begun,
    compared,
    dated,
    moved_on,
    tallied,
)
from tertulia.core.transcripts import Arrival
from tertulia.core.types import Conversation, DayUse, Message, Page
from tertulia.ports import Clock

SQL: Final = statements("sqlite", "moving")
MESSAGES: Final = statements("sqlite", "messages")
BRANCHES: Final = statements("sqlite", "branches")

Database = sqlite3.Connection


class SqliteTranscripts:
    """The `Transcripts` port."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    async def count(self, owner: str) -> int:
        """All conversations of the owner."""
        row = await self._readers.ask(
            lambda database: database.execute(SQL["count"], {"owner": owner}).fetchone()
        )
        return int(row["conversations"])

    async def conversations(self, owner: str, *, after: str, limit: int) -> Sequence[Conversation]:
        """The next ones by id."""
        values = {"owner": owner, "after": after, "rows": limit}
        rows = await self._readers.ask(
            lambda database: database.execute(SQL["conversations"], values).fetchall()
        )
        return tuple(map(conversation_of, rows))

    async def messages(
        self, owner: str, conversation_id: str, *, after: int, limit: int
    ) -> Sequence[tuple[Message, str]]:
        """The next ones by number."""
        values = {
            "owner": owner,
            "conversation_id": conversation_id,
            "after": after,
            "rows": limit,
        }
        rows = await self._readers.ask(
            lambda database: database.execute(SQL["messages"], values).fetchall()
        )
        return tuple((message_of(row), row["feedback_why"] or "") for row in rows)

    async def used(self, owner: str, *, limit: int) -> Sequence[DayUse]:
        """What was settled by day and model."""
        values = {"owner": owner, "rows": limit}
        rows = await self._readers.ask(
            lambda database: database.execute(SQL["used"], values).fetchall()
        )
        return tuple(map(day_use_of, rows))


class SqliteImports:
    """The `Imports` port."""

    def __init__(self, writer: Writer, readers: Readers, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock

    async def create(self, new: NewImport, *, limit: int) -> Import | TooManyImports:
        """A new import, waiting."""
        made = begun(new, self._clock.now())

        def step(database: Database) -> Import | TooManyImports:
            active = database.execute(SQL["active"], {"owner": new.owner}).fetchone()
            if active["imports"] >= limit:
                return TooManyImports(limit)
            database.execute(SQL["add"], import_values(made))
            return made

        return await self._writer.put(step)

    async def find(self, owner: str, import_id: str) -> Import | None:
        """The owner's import."""
        return await self._readers.ask(lambda database: _find(database, owner, import_id))

    async def list(self, owner: str, *, after: str | None, limit: int) -> Page[Import]:
        """One page, newest first."""
        values = {"owner": owner, "after": after, "rows": limit + 1}
        rows = await self._readers.ask(
            lambda database: database.execute(SQL["page"], values).fetchall()
        )
        return page_by_id(rows, limit, import_of)

    async def cancel(self, owner: str, import_id: str) -> Import | None:
        """Cancelled, if it had not ended; else as it is."""
        now = self._clock.now()

        def step(database: Database) -> Import | None:
            job = _find(database, owner, import_id)
            if job is None or "cancel" not in IMPORT_TRANSITIONS[job.state]:
                return job
            job = replace(dated(moved_on(job, "cancel"), now), epoch=job.epoch + 1)
            _write(database, job, None)
            return job

        return await self._writer.put(step)

    async def delete(self, owner: str, import_id: str | None) -> bool:
        """One of the owner's, or all."""
        values = {"owner": owner, "id": import_id}
        return await self._writer.put(
            lambda database: database.execute(SQL["delete"], values).rowcount > 0
        )


class SqliteImportWork:
    """The `ImportWork` port."""

    def __init__(self, writer: Writer, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock

    async def claim(self, *, lease_s: float) -> Import | None:
        """The oldest that nobody works on, at its next epoch."""
        now = self._clock.now()

        def step(database: Database) -> Import | None:
            row = database.execute(SQL["due"], {"now": now}).fetchone()
            if row is None:
                return None
            job = import_of(row)
            job = replace(moved_on(job, "claim"), epoch=job.epoch + 1)
            _write(database, job, now + lease_s)
            return job

        return await self._writer.put(step)

    async def save(self, progress: Progress) -> Import | None:
        """One transaction, under the epoch of the import."""
        job, now = progress.job, self._clock.now()

        def step(database: Database) -> Import | None:
            if database.execute(SQL["held"], import_values(job)).fetchone() is None:
                return None
            outcomes = [_take_in(database, arrival, now) for arrival in progress.arrivals]
            told = tallied(progress, outcomes, now)
            _write(database, told, now + progress.lease_s if progress.then == "hold" else None)
            return told

        return await self._writer.put(step)

    async def sweep(self, *, kept_s: float) -> int:
        """Removes what ended long ago."""
        values = {"old": self._clock.now() - kept_s}
        return await self._writer.put(
            lambda database: int(database.execute(SQL["sweep"], values).rowcount)
        )


def _find(database: Database, owner: str, import_id: str) -> Import | None:
    row = database.execute(SQL["find"], {"owner": owner, "id": import_id}).fetchone()
    return import_of(row) if row is not None else None


def _write(database: Database, job: Import, lease_until: float | None) -> None:
    database.execute(SQL["write"], {**import_values(job), "lease_until": lease_until})


def _take_in(database: Database, arrival: Arrival, now: float) -> Taken:
    values = arrival_values(arrival, now)
    there = database.execute(SQL["there"], values).fetchone()
    if there is not None:
        return compared(there["messages"], arrival)
    database.execute(SQL["add_conversation"], values)
    database.executemany(MESSAGES["add"], map(message_values, arrival.messages))
    database.execute(
        BRANCHES["mark"],
        {
            "owner": values["owner"],
            "conversation_id": arrival.conversation.id,
            "leaf": arrival.conversation.head_message_id,
        },
    )
    by_id = {message.id: message for message in arrival.messages}
    for message_id, why in arrival.whys.items():
        its = {"owner": values["owner"], "id": message_id}
        database.execute(
            MESSAGES["rate"], {**its, "rating": by_id[message_id].feedback, "why": why}
        )
    return Taken.MADE
