"""Sessions and sign-in links in Postgres, by the hash of their secret."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tertulia.backends.postgres.database import Database
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.sql.account_rows import user_of
from tertulia.core.types import OpenSession, Session, User

SQL: Final = postgres_statements("sessions")


class PostgresSessions:
    """The `Sessions` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(self, user_id: str, token_hash: str, *, lasts_s: float) -> None:
        """A session from now on; expired ones are cleared away."""
        await self._begin("open", user_id, token_hash, lasts_s)

    async def find(self, token_hash: str) -> Session | None:
        """The live session of an enabled user."""
        values = {"token_hash": token_hash, "now": self._database.now()}
        row = await self._database.row(SQL["find"], values)
        if row is None:
            return None
        return Session(user_of(row), token_hash, row["age_s"])

    async def alive(self, token_hashes: Sequence[str]) -> frozenset[str]:
        """Those that are live sessions of enabled users."""
        values = {"token_hashes": list(token_hashes), "now": self._database.now()}
        rows = await self._database.rows(SQL["alive"], values)
        return frozenset(row["token_hash"] for row in rows)

    async def list(self, user_id: str, *, limit: int) -> Sequence[OpenSession]:
        """The live sessions of an enabled user, the newest first."""
        values = {"user_id": user_id, "now": self._database.now(), "limit": limit}
        rows = await self._database.rows(SQL["list"], values)
        return [OpenSession(*row.values()) for row in rows]

    async def close(self, *, token_hash: str | None = None, user_id: str | None = None) -> int:
        """Closes the session of that token, or all of that user."""
        values = {"token_hash": token_hash, "user_id": user_id}
        return len(await self._database.rows(SQL["close"], values))

    async def add_link(self, user_id: str, token_hash: str, *, lasts_s: float) -> None:
        """A one-time link; earlier links of this user die."""
        await self._begin("add_link", user_id, token_hash, lasts_s)

    async def redeem(self, token_hash: str) -> User | None:
        """The link's user, once."""
        values = {"token_hash": token_hash, "now": self._database.now()}
        row = await self._database.row(SQL["redeem"], values)
        return user_of(row) if row is not None else None

    async def _begin(self, statement: str, user_id: str, token_hash: str, lasts_s: float) -> None:
        values = {
            "user_id": user_id,
            "token_hash": token_hash,
            "lasts_s": lasts_s,
            "now": self._database.now(),
        }
        await self._database.row(SQL[statement], values)
