"""Who signs in by a provider, in Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from tertulia.backends.postgres.database import Database
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.sql.account_rows import identity_of, user_of, user_values
from tertulia.core.identities import Identity
from tertulia.core.types import User

SQL: Final = postgres_statements("identities")
ACCOUNTS: Final = postgres_statements("accounts")


class _Beaten(Exception):
    """Somebody else stored this identity first: what this transaction wrote is undone."""


class PostgresIdentities:
    """The `Identities` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, issuer: str, subject: str) -> User | None:
        """The user, disabled or not."""
        row = await self._database.row(SQL["find"], {"issuer": issuer, "subject": subject})
        return user_of(row) if row is not None else None

    async def add(self, user: User, identity: Identity) -> User | None:
        """The user who has the identity from now on; None if the name is taken."""
        there = await self.find(identity.issuer, identity.subject)
        if there is not None:
            return there
        try:
            async with self._database.transaction() as step:
                if await step.row(ACCOUNTS["add"], user_values(user)) is None:
                    # The one who has the name may be this very person, at another gateway.
                    return await self.find(identity.issuer, identity.subject)
                if await step.row(SQL["add"], asdict(identity)) is None:
                    raise _Beaten
                return user
        except _Beaten:
            return await self.find(identity.issuer, identity.subject)

    async def of_user(self, user_id: str) -> Sequence[Identity]:
        """All that a user signs in by."""
        rows = await self._database.rows(SQL["of_user"], {"user_id": user_id})
        return [identity_of(row) for row in rows]
