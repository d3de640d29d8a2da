"""API keys in Postgres, by the hash of their secret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import asyncpg

from tertulia.backends.changes import LAST_USED_STEP_S
from tertulia.backends.postgres.database import Database
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.sql.account_rows import api_key_of, api_key_values
from tertulia.core.types import ApiKey, User

SQL: Final = postgres_statements("api_keys")


class PostgresApiKeys:
    """The `ApiKeys` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: ApiKey) -> None:
        """Stores a key; its secret is known only by its hash."""
        values = api_key_values(key)
        try:
            await self._database.row(SQL["add"], values)
        except asyncpg.UniqueViolationError:
            raise ValueError(f"a key {key.id} is there already") from None

    async def list(self, user_id: str) -> Sequence[ApiKey]:
        """The user's keys, oldest first."""
        rows = await self._database.rows(SQL["list"], {"owner": user_id})
        return tuple(api_key_of(row) for row in rows)

    async def revoke(self, user_id: str, key_id: str) -> bool:
        """Removes the user's own key."""
        values = {"owner": user_id, "id": key_id}
        return await self._database.row(SQL["revoke"], values) is not None

    async def by_secret(self, secret_hash: str) -> tuple[User, ApiKey] | None:
        """The enabled user and the key of this secret."""
        values = {
            "secret_hash": secret_hash,
            "step_s": LAST_USED_STEP_S,
            "now": self._database.now(),
        }
        row = await self._database.row(SQL["by_secret"], values)
        if row is None:
            return None
        key = api_key_of(row)
        user = User(
            id=key.owner,
            name=row["user_name"],
            role=row["role"],
            plan=row["plan"],
            password_hash=row["password_hash"],
            created_at=row["user_created_at"],
            disabled=row["disabled"],
            evaluation=row["evaluation"],
        )
        if row["is_to_be_noted"]:
            now: float = row["now"]
            await self._database.row(SQL["use"], {"owner": key.owner, "id": key.id, "now": now})
            key = replace(key, last_used_at=now)
        return user, key

    async def alive(self, secret_hashes: Sequence[str]) -> frozenset[str]:
        """Those that are keys of enabled users."""
        rows = await self._database.rows(SQL["alive"], {"secret_hashes": list(secret_hashes)})
        return frozenset(row["secret_hash"] for row in rows)
