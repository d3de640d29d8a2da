"""Who signs in by a provider, in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from tertulia.backends.sql import statements
from tertulia.backends.sql.account_rows import identity_of, user_of, user_values
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.identities import Identity
from tertulia.core.types import User

SQL: Final = statements("sqlite", "identities")
ACCOUNTS: Final = statements("sqlite", "accounts")

Database = sqlite3.Connection


class SqliteIdentities:
    """The `Identities` port."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def find(self, issuer: str, subject: str) -> User | None:
        """The user, disabled or not."""
        row = await self._readers.row(SQL["find"], {"issuer": issuer, "subject": subject})
        return user_of(row) if row is not None else None

    async def add(self, user: User, identity: Identity) -> User | None:
        """The user who has the identity from now on; None if the name is taken."""
        values = asdict(identity)

        def step(database: Database) -> User | None:
            there = database.execute(SQL["find"], values).fetchone()
            if there is not None:
                return user_of(there)
            if not database.execute(ACCOUNTS["add"], user_values(user)).rowcount:
                return None
            database.execute(SQL["add"], values)
            return user

        return await self._writer.put(step)

    async def of_user(self, user_id: str) -> Sequence[Identity]:
        """All that a user signs in by."""
        rows = await self._readers.ask(
            lambda database: database.execute(SQL["of_user"], {"user_id": user_id}).fetchall()
        )
        return [identity_of(row) for row in rows]
