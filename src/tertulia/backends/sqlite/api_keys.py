"""API keys in SQLite, by the hash of their secret."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tertulia.backends.changes import LAST_USED_STEP_S
from tertulia.backends.sql import statements
from tertulia.backends.sql.account_rows import api_key_of, api_key_values, user_of
from tertulia.backends.sql.rows import json_list
from tertulia.backends.sqlite.known import Found, KnownKeys
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.types import ApiKey, User
from tertulia.ports import Clock

SQL: Final = statements("sqlite", "api_keys")
ACCOUNTS: Final = statements("sqlite", "accounts")

Database = sqlite3.Connection


class SqliteApiKeys:
    """The `ApiKeys` port."""

    def __init__(self, writer: Writer, readers: Readers, known: KnownKeys, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._known = known
        self._clock = clock

    async def add(self, key: ApiKey) -> None:
        """Stores a key; its secret is known only by its hash."""
        values = api_key_values(key)

        def step(database: Database) -> None:
            try:
                database.execute(SQL["add"], values)
            except sqlite3.IntegrityError:
                raise ValueError(f"a key {key.id} is there already") from None

        await self._writer.put(step)

    async def list(self, user_id: str) -> Sequence[ApiKey]:
        """The user's keys, oldest first."""
        rows = await self._readers.ask(
            lambda database: database.execute(SQL["list"], {"owner": user_id}).fetchall()
        )
        return tuple(api_key_of(row) for row in rows)

    async def revoke(self, user_id: str, key_id: str) -> bool:
        """Removes the user's own key."""
        values = {"owner": user_id, "id": key_id}
        return await self._writer.put(
            lambda database: database.execute(SQL["revoke"], values).rowcount > 0,
            lambda _: self._known.forget_all(),
        )

    async def by_secret(self, secret_hash: str) -> tuple[User, ApiKey] | None:
        """The enabled user and the key of this secret."""
        found = self._known.find(secret_hash) or await self._read(secret_hash)
        if found is None:
            return None
        user, key = found
        now = self._clock.now()
        if key.last_used_at is None or key.last_used_at <= now - LAST_USED_STEP_S:
            values = {"owner": key.owner, "id": key.id, "now": now}
            await self._writer.put(
                lambda database: _use(database, values),
                lambda _: self._known.forget(secret_hash),
            )
            key = replace(key, last_used_at=now)
        return user, key

    async def _read(self, secret_hash: str) -> Found | None:
        def query(database: Database) -> Found | None:
            row = database.execute(SQL["by_secret"], {"secret_hash": secret_hash}).fetchone()
            if row is None:
                return None
            user = database.execute(ACCOUNTS["find"], {"id": row["owner"]}).fetchone()
            return user_of(user), api_key_of(row)

        since = self._known.changes
        found = await self._readers.look(query)
        if found is not None:
            self._known.keep(secret_hash, found, since=since)
        return found

    async def alive(self, secret_hashes: Sequence[str]) -> frozenset[str]:
        """Those that are keys of enabled users."""
        values = {"secret_hashes": json_list(secret_hashes)}
        rows = await self._readers.look(
            lambda database: database.execute(SQL["alive"], values).fetchall()
        )
        return frozenset(row["secret_hash"] for row in rows)


def _use(database: Database, values: Mapping[str, Any]) -> None:
    database.execute(SQL["use"], values)
