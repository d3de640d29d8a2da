"""Sessions and sign-in links in SQLite, by the hash of their secret."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tertulia.backends.sql import statements
from tertulia.backends.sql.account_rows import user_of
from tertulia.backends.sql.rows import json_list
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.types import OpenSession, Session, User
from tertulia.ports import Clock

SQL: Final = statements("sqlite", "sessions")
ACCOUNTS: Final = statements("sqlite", "accounts")

Database = sqlite3.Connection


class SqliteSessions:
    """The `Sessions` port."""

    def __init__(self, writer: Writer, readers: Readers, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock

    async def open(self, user_id: str, token_hash: str, *, lasts_s: float) -> None:
        """A session from now on; expired ones are cleared away."""
        values = self._from_now(user_id, token_hash, lasts_s)
        await self._writer.put(lambda database: _all(database, ("clear_sessions", "open"), values))

    async def find(self, token_hash: str) -> Session | None:
        """The live session of an enabled user."""
        values = {"token_hash": token_hash, "now": self._clock.now()}
        row = await self._readers.row(SQL["find"], values)
        if row is None:
            return None
        return Session(user_of(row), token_hash, row["age_s"])

    async def alive(self, token_hashes: Sequence[str]) -> frozenset[str]:
        """Those that are live sessions of enabled users."""
        values = {"token_hashes": json_list(token_hashes), "now": self._clock.now()}
        rows = await self._readers.look(
            lambda database: database.execute(SQL["alive"], values).fetchall()
        )
        return frozenset(row["token_hash"] for row in rows)

    async def list(self, user_id: str, *, limit: int) -> Sequence[OpenSession]:
        """The live sessions of an enabled user, the newest first."""
        values = {"user_id": user_id, "now": self._clock.now(), "limit": limit}
        rows = await self._readers.look(
            lambda database: database.execute(SQL["list"], values).fetchall()
        )
        return [OpenSession(*row) for row in rows]

    async def close(self, *, token_hash: str | None = None, user_id: str | None = None) -> int:
        """Closes the session of that token, or all of that user."""
        values = {"token_hash": token_hash, "user_id": user_id}
        return await self._writer.put(
            lambda database: database.execute(SQL["close"], values).rowcount
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
