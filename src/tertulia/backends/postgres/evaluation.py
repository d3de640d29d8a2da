"""Which conversations in Postgres may be used to judge models and changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tertulia.backends.postgres.database import Database
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.sql.rows import conversation_of
from tertulia.core.types import Conversation

SQL: Final = postgres_statements("evaluation")


class PostgresEvaluation:
    """The `Evaluation` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def usable(
        self, *, after: tuple[str, str] = ("", ""), limit: int
    ) -> Sequence[Conversation]:
        """Some of them, by owner and id."""
        owner, conversation_id = after
        values = {"owner": owner, "id": conversation_id, "rows": limit}
        rows = await self._database.rows(SQL["usable"], values)
        return tuple(conversation_of(row) for row in rows)

    async def is_usable(self, owner: str, conversation_id: str) -> bool:
        """Whether this one may be used now."""
        values = {"owner": owner, "id": conversation_id}
        return await self._database.row(SQL["is_usable"], values) is not None
