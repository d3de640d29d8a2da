"""Sessions, sign-in links and API keys in SQLite, by the hash of their secret."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tertulia.backends.changes import LAST_USED_STEP_S
from tertulia.backends.sql import statements
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.rows import api_key_of, user_of
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.types import ApiKey, Session, User
from tertulia.ports import Clock

SQL: Final = statements("credentials")
ACCOUNTS: Final = statements("accounts")


Database = sqlite3.Connection


class SqliteCredentials:
    """The `Credentials` port."""

    def __init__(self, writer: Writer, readers: Readers, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock

    async def open_session(self, user_id: str, token_hash: str, *, lasts_s: float) -> None:
        """A session from now on; expired ones are cleared away."""
        values = self._from_now(user_id, token_hash, lasts_s)
        await self._writer.put(
            lambda database: _all(database, ("clear_sessions", "open_session"), values)
        )

    async def session(self, token_hash: str) -> Session | None:
        """The live session of an enabled user."""
        values = {"token_hash": token_hash, "now": self._clock.now()}
        row = await self._readers.ask(
            lambda database: database.execute(SQL["session"], values).fetchone()
        )
        if row is None:
            return None
        opened_at = row["opened_at"]
        return Session(user_of(row), token_hash, opened_at, opened_at, row["expires_at"])

    async def close_sessions(
        self, *, token_hash: str | None = None, user_id: str | None = None
    ) -> int:
        """Closes the session of that token, or all of that user."""
        values = {"token_hash": token_hash, "user_id": user_id}
        return await self._writer.put(
            lambda database: database.execute(SQL["close_sessions"], values).rowcount
        )

    async def add_link(self, user_id: str, token_hash: str, *, lasts_s: float) -> None:
        """A one-time link; earlier links of this user die."""
        values = self._from_now(user_id, token_hash, lasts_s)
        await self._writer.put(lambda database: _all(database, ("clear_links", "add_link"), values))

    async def redeem(self, token_hash: str) -> User | None:
        """The link's user, once."""
        values = {"token_hash": token_hash, "now": self._clock.now()}

        def step(database: Database) -> User | None:
            taken = database.execute(SQL["redeem"], values).fetchone()
            if taken is None:
                return None
            found = database.execute(ACCOUNTS["find"], {"id": taken["user_id"]}).fetchone()
            return user_of(found)

        return await self._writer.put(step)

    async def add_key(self, key: ApiKey) -> None:
        """Stores a key; its secret is known only by its hash."""
        values = {
            "owner": key.owner,
            "id": key.id,
            "name": key.name,
            "prefix": key.prefix,
            "secret_hash": key.secret_hash,
            "created_at": key.created_at,
            "last_used_at": key.last_used_at,
        }

        def step(database: Database) -> None:
            try:
                database.execute(SQL["add_key"], values)
            except sqlite3.IntegrityError:
                raise ValueError(f"a key {key.id} is there already") from None

        await self._writer.put(step)

    async def keys(self, user_id: str) -> Sequence[ApiKey]:
        """The user's keys, oldest first."""
        rows = await self._readers.ask(
            lambda database: database.execute(SQL["keys"], {"owner": user_id}).fetchall()
        )
        return tuple(api_key_of(row) for row in rows)

    async def revoke_key(self, user_id: str, key_id: str) -> bool:
        """Removes the user's own key."""
        values = {"owner": user_id, "id": key_id}
        return await self._writer.put(
            lambda database: database.execute(SQL["revoke_key"], values).rowcount > 0
        )

    async def by_key(self, secret_hash: str) -> tuple[User, ApiKey] | None:
        """The enabled user and the key of this secret."""

        def query(database: Database) -> tuple[User, ApiKey] | None:
            row = database.execute(SQL["key"], {"secret_hash": secret_hash}).fetchone()
            if row is None:
                return None
            user = database.execute(ACCOUNTS["find"], {"id": row["owner"]}).fetchone()
            return user_of(user), api_key_of(row)

        found = await self._readers.ask(query)
        if found is None:
            return None
        user, key = found
        now = self._clock.now()
        if key.last_used_at is None or key.last_used_at <= now - LAST_USED_STEP_S:
            values = {"owner": key.owner, "id": key.id, "now": now}
            await self._writer.put(lambda database: _all(database, ("use_key",), values))
            key = replace(key, last_used_at=now)
        return user, key

    def _from_now(self, user_id: str, token_hash: str, lasts_s: float) -> dict[str, Any]:
        now = self._clock.now()
        return {
            "user_id": user_id,
            "token_hash": token_hash,
            "now": now,
            "expires_at": now + lasts_s,
        }


def _all(database: Database, names: Sequence[str], values: Mapping[str, Any]) -> None:
    for name in names:
        database.execute(SQL[name], values)
