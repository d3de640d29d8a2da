"""Orders to delete in SQLite, and the end of accounts. Every call is one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from tertulia.backends.sql import statements
from tertulia.backends.sql.deletion_rows import (
    deletion_of,
    deletion_values,
    deletions_page,
    deletions_wanted,
    order_values,
)
from tertulia.backends.sqlite.known import KnownKeys
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.deletions import Deletion, DeletionKind, Place, Scrubbed, name_mark
from tertulia.core.types import Page
from tertulia.ports import Clock
from tertulia.ports_of_deletions import Aged, Claimed

SQL: Final = statements("sqlite", "deletions")
ACCOUNTS: Final = statements("sqlite", "accounts")

Database = sqlite3.Connection

# The credentials of a user, each in a table of its own.
_CREDENTIALS: Final = (
    "delete_identities",
    "delete_sessions",
    "delete_links",
    "delete_keys",
    "delete_user",
)


class SqliteDeletions:
    """The `Deletions` port."""

    def __init__(self, writer: Writer, readers: Readers, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock

    async def claim(self, *, lease_s: float) -> Claimed | None:
        """The order that has been due longest."""
        now = self._clock.now()
        values = {"now": now, "until": now + lease_s}
        row = await self._writer.put(
            lambda database: database.execute(SQL["claim"], values).fetchone()
        )
        return Claimed(deletion_of(row), now) if row is not None else None

    async def save(self, deletion: Deletion, *, pause_s: float) -> bool:
        """What a look found, unless another look came first."""
        values = {**deletion_values(deletion), "pause_s": pause_s, "now": self._clock.now()}
        return await self._writer.put(
            lambda database: database.execute(SQL["save"], values).rowcount > 0
        )

    async def page(self, *, cursor: str | None, limit: int) -> Page[Deletion]:
        """One page, newest first."""
        values = deletions_wanted(cursor=cursor, limit=limit)
        rows = await self._readers.ask(
            lambda database: database.execute(SQL["page"], values).fetchall()
        )
        return deletions_page(rows, limit)

    async def overdue(self, *, age_s: float) -> int:
        """How many are not over that were given so long ago."""
        values = {"old": self._clock.now() - age_s}
        row = await self._readers.ask(
            lambda database: database.execute(SQL["overdue"], values).fetchone()
        )
        return int(row[0])

    async def sweep(self, *, rows: int, kept_s: float) -> int:
        """Removes orders that have been over for long."""
        values = {"old": self._clock.now() - kept_s, "rows": rows}
        return await self._writer.put(
            lambda database: database.execute(SQL["sweep"], values).rowcount
        )


class SqliteErasure:
    """The `Erasure` port."""

    def __init__(self, writer: Writer, readers: Readers, known: KnownKeys, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._known = known
        self._clock = clock

    async def close(self, user_id: str) -> bool:
        """Ends an account, with its credentials."""
        now = self._clock.now()

        def step(database: Database) -> bool:
            user = database.execute(ACCOUNTS["find"], {"id": user_id}).fetchone()
            for statement in _CREDENTIALS:
                database.execute(SQL[statement], {"id": user_id})
            if user is None:
                return False
            mark = {"id": user_id, "name_mark": name_mark(user["name"]), "now": now}
            database.execute(SQL["departed"], mark)
            order(database, user_id, user_id, DeletionKind.ACCOUNT, now)
            self._writer.scrub()
            return True

        return await self._writer.put(step, lambda _: self._known.forget_all())

    async def left(self, deletion: Deletion) -> frozenset[Place]:
        """Places that hold something still. No log is left behind here."""
        if deletion.kind is DeletionKind.MESSAGES:
            return frozenset()
        is_account = deletion.kind is DeletionKind.ACCOUNT
        statement = SQL["holds_of_owner" if is_account else "holds_conversation"]
        values = {"owner": deletion.owner, "target": deletion.target}
        row = await self._readers.ask(
            lambda database: database.execute(statement, values).fetchone()
        )
        return frozenset(Place(name) for name in row.keys() if row[name])  # noqa: SIM118  # no mapping

    async def scrub(self, _owner: str, _deleted_at: float, /) -> Scrubbed | None:
        """Deleted rows are overwritten where they stood; here they leave the write-ahead log."""
        return "overwritten" if await self._writer.scrubbed() else None

    async def aged(self, kept_s: Mapping[str, float], *, limit: int) -> Sequence[Aged]:
        """What nobody has touched for longer than it is kept."""
        values = {
            "kept": json.dumps(list(kept_s.items())),
            "now": self._clock.now(),
            "rows": limit,
        }

        def query(database: Database) -> list[Aged]:
            old = database.execute(SQL["aged_conversations"], values)
            return [Aged(row["owner"], row["id"]) for row in old]

        return await self._readers.ask(query)


def order(database: Database, owner: str, target: str, kind: DeletionKind, now: float) -> None:
    """Leaves an order to delete, within the transaction that deletes the rows."""
    database.execute(SQL["order"], order_values(owner, target, kind, now))
