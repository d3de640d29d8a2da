"""Users in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tertulia.backends.changes import USER_FIELDS, demand_changeable
from tertulia.backends.sql import statements
from tertulia.backends.sql.account_rows import user_of, user_values
from tertulia.backends.sql.pages import page_by_id, users_wanted
from tertulia.backends.sqlite.known import KnownKeys
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.turns import spent_of
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.types import Page, Spent, User
from tertulia.ports import Clock

SQL: Final = statements("sqlite", "accounts")

Database = sqlite3.Connection


class SqliteAccounts:
    """The `Accounts` port."""

    def __init__(self, writer: Writer, readers: Readers, known: KnownKeys, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._known = known
        self._clock = clock

    async def add(self, user: User) -> User | None:
        """The new user, or None if the name is taken in any case."""
        values = user_values(user)
        added = await self._writer.put(
            lambda database: database.execute(SQL["add"], values).rowcount
        )
        return user if added else None

    async def find(self, user_id: str) -> User | None:
        """The user, disabled or not."""
        return await self._readers.look(lambda database: _find(database, user_id))

    async def by_name(self, name: str) -> User | None:
        """The user of that name in any case."""
        values = {"name_key": name.casefold()}
        row = await self._readers.row(SQL["by_name"], values)
        return user_of(row) if row is not None else None

    async def change(self, user_id: str, changes: Mapping[str, Any]) -> User | None:
        """Touches only the named fields; None if there is no such user."""
        demand_changeable(changes, USER_FIELDS)

        def step(database: Database) -> User | None:
            known = _find(database, user_id)
            if known is None:
                return None
            changed = replace(known, **changes)
            database.execute(SQL["change"], user_values(changed))
            return changed

        return await self._writer.put(step, lambda _: self._known.forget_all())

    async def count(self) -> int:
        """How many users there are."""
        row = await self._readers.ask(lambda database: database.execute(SQL["count"]).fetchone())
        return int(row[0])

    async def page(self, *, plan: str | None, after: str | None, limit: int) -> Page[User]:
        """Users by id."""
        wanted = users_wanted(plan=plan, after=after, limit=limit)
        rows = await self._readers.ask(
            lambda database: database.execute(SQL["page"], wanted).fetchall()
        )
        return page_by_id(rows, limit, user_of)

    async def spent(self, user_id: str) -> Spent:
        """What `admit` would look at."""
        now = self._clock.now()
        return await self._readers.look(lambda database: spent_of(database, user_id, now))


def _find(database: Database, user_id: str) -> User | None:
    row = database.execute(SQL["find"], {"id": user_id}).fetchone()
    return user_of(row) if row is not None else None
