"""Export and import in Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from tertulia.backends.postgres.database import Database, Transaction
from tertulia.backends.postgres.signature import signature_bits
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.sql.import_rows import (
    arrival_values,
    import_of,
    import_values,
)
from tertulia.backends.sql.pages import page_by_id
from tertulia.backends.sql.rows import conversation_of, day_use_of, message_of, message_values
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
from tertulia.core.search import folded
from tertulia.core.transcripts import Arrival
from tertulia.core.types import Conversation, DayUse, Message, Page

SQL: Final = postgres_statements("moving")
TURNS: Final = postgres_statements("turns")

# The columns of a message that are not those of its conversation.
_OF_MESSAGE: Final = (
    "seq",
    "parent_id",
    "role",
    "content",
    "tokens",
    "tokenizer",
    "status",
    "created_at",
    "model",
    "requested",
    "reason",
    "finish",
    "notices",
    "failure",
    "feedback",
)


class PostgresTranscripts:
    """The `Transcripts` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def count(self, owner: str) -> int:
        """All conversations of the owner."""
        row = await self._database.row(SQL["count"], {"owner": owner})
        return int(row["conversations"])

    async def conversations(self, owner: str, *, after: str, limit: int) -> Sequence[Conversation]:
        """The next ones by id."""
        values = {"owner": owner, "after": after, "rows": limit}
        return tuple(map(conversation_of, await self._database.rows(SQL["conversations"], values)))

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
        rows = await self._database.rows(SQL["messages"], values)
        return tuple((message_of(row), row["feedback_why"] or "") for row in rows)

    async def used(self, owner: str, *, limit: int) -> Sequence[DayUse]:
        """What was settled by day and model."""
        rows = await self._database.rows(SQL["used"], {"owner": owner, "rows": limit})
        return tuple(map(day_use_of, rows))


class PostgresImports:
    """The `Imports` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, new: NewImport, *, limit: int) -> Import | TooManyImports:
        """A new import, waiting."""
        values = {"owner": new.owner, "now": self._database.now()}
        async with self._database.transaction() as step:
            await step.row(TURNS["pass"], values)  # one import of this owner at a time
            active = await step.row(SQL["active"], values)
            if active["imports"] >= limit:
                return TooManyImports(limit)
            made = begun(new, active["now"])
            await step.row(SQL["add"], import_values(made))
            return made

    async def find(self, owner: str, import_id: str) -> Import | None:
        """The owner's import."""
        row = await self._database.row(SQL["find"], {"owner": owner, "id": import_id})
        return import_of(row) if row is not None else None

    async def list(self, owner: str, *, after: str | None, limit: int) -> Page[Import]:
        """One page, newest first."""
        values = {"owner": owner, "after": after, "rows": limit + 1}
        return page_by_id(await self._database.rows(SQL["page"], values), limit, import_of)

    async def cancel(self, owner: str, import_id: str) -> Import | None:
        """Cancelled, if it had not ended; else as it is."""
        values = {"owner": owner, "id": import_id, "now": self._database.now()}
        async with self._database.transaction() as step:
            row = await step.row(SQL["find_to_change"], values)
            if row is None:
                return None
            job = import_of(row)
            if "cancel" in IMPORT_TRANSITIONS[job.state]:
                job = replace(dated(moved_on(job, "cancel"), row["now"]), epoch=job.epoch + 1)
                await step.row(SQL["write"], {**values, **import_values(job), "lease_s": None})
            return job

    async def delete(self, owner: str, import_id: str | None) -> bool:
        """One of the owner's, or all."""
        gone = await self._database.row(SQL["delete"], {"owner": owner, "id": import_id})
        return bool(gone["imports"] > 0)


class PostgresImportWork:
    """The `ImportWork` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, *, lease_s: float) -> Import | None:
        """The oldest that nobody works on, at its next epoch."""
        values = {"now": self._database.now(), "lease_s": lease_s}
        async with self._database.transaction() as step:
            row = await step.row(SQL["due"], values)
            if row is None:
                return None
            job = import_of(row)
            job = replace(moved_on(job, "claim"), epoch=job.epoch + 1)
            await step.row(SQL["write"], {**values, **import_values(job)})
            return job

    async def save(self, progress: Progress) -> Import | None:
        """One transaction, under the epoch of the import."""
        values = {
            "now": self._database.now(),
            "lease_s": progress.lease_s if progress.then == "hold" else None,
        }
        async with self._database.transaction() as step:
            held = await step.row(SQL["held"], {**values, **import_values(progress.job)})
            if held is None:
                return None
            outcomes = [
                await _take_in(step, arrival, values["now"]) for arrival in progress.arrivals
            ]
            told = tallied(progress, outcomes, held["now"])
            await step.row(SQL["write"], {**values, **import_values(told)})
            return told

    async def sweep(self, *, kept_s: float) -> int:
        """Removes what ended long ago."""
        values = {"now": self._database.now(), "kept_s": kept_s}
        gone = await self._database.row(SQL["sweep"], values)
        return int(gone["imports"])


async def _take_in(step: Transaction, arrival: Arrival, now: float | None) -> Taken:
    values = arrival_values(arrival, now)
    there = await step.row(SQL["there"], values)
    if there is not None:
        return compared(there["messages"], arrival)
    title = folded(arrival.conversation.title)
    await step.row(SQL["add_conversation"], {**values, "folded": title})
    if arrival.messages:
        await step.row(SQL["add_messages"], _columns(arrival))
    return Taken.MADE


def _columns(arrival: Arrival) -> dict[str, Any]:
    """Messages as arrays, one a column."""
    rows = list(map(message_values, arrival.messages))
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in _OF_MESSAGE}
    return {
        **columns,
        "owner": arrival.conversation.owner,
        "conversation_id": arrival.conversation.id,
        "ids": [row["id"] for row in rows],
        "folded": [folded(row["content"]) for row in rows],
        "signature": [signature_bits(row["content"]) for row in rows],
        "head_message_id": arrival.conversation.head_message_id,
        "feedback_why": [arrival.whys.get(row["id"]) for row in rows],
    }
