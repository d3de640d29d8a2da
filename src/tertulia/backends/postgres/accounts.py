"""Users in Postgres."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tertulia.backends.changes import USER_FIELDS, demand_changeable
from tertulia.backends.postgres.database import Database
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.postgres.turns import spent_of
from tertulia.backends.sql.account_rows import user_of, user_values
from tertulia.backends.sql.pages import page_by_id, users_wanted
from tertulia.core.types import Page, Spent, User

SQL: Final = postgres_statements("accounts")


class PostgresAccounts:
    """The `Accounts` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, user: User) -> User | None:
        """The new user, or None if the name is taken in any case."""
        added = await self._database.row(SQL["add"], user_values(user))
        return user if added is not None else None

    async def find(self, user_id: str) -> User | None:
        """The user, disabled or not."""
        row = await self._database.row(SQL["find"], {"id": user_id})
        return user_of(row) if row is not None else None

    async def by_name(self, name: str) -> User | None:
        """The user of that name in any case."""
        row = await self._database.row(SQL["by_name"], {"name_key": name.casefold()})
        return user_of(row) if row is not None else None

    async def change(self, user_id: str, changes: Mapping[str, Any]) -> User | None:
        """Touches only the named fields; None if there is no such user."""
        demand_changeable(changes, USER_FIELDS)
        async with self._database.transaction() as step:
            row = await step.row(SQL["find_to_change"], {"id": user_id})
            if row is None:
                return None
            changed = replace(user_of(row), **changes)
            await step.row(SQL["change"], user_values(changed))
            return changed

    async def count(self) -> int:
        """How many users there are."""
        row = await self._database.row(SQL["count"], {})
        return int(row["users"])

    async def page(self, *, plan: str | None, after: str | None, limit: int) -> Page[User]:
        """Users by id."""
        wanted = users_wanted(plan=plan, after=after, limit=limit)
        return page_by_id(await self._database.rows(SQL["page"], wanted), limit, user_of)

    async def spent(self, user_id: str) -> Spent:
        """What `admit` would look at."""
        values = {"owner": user_id, "now": self._database.now()}
        return spent_of(await self._database.row(SQL["spent"], values))
