"""Which conversations in SQLite may be used to judge models and changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tertulia.backends.sql import statements
from tertulia.backends.sql.rows import conversation_of
from tertulia.backends.sqlite.readers import Readers
from tertulia.core.types import Conversation

SQL: Final = statements("sqlite", "evaluation")


class SqliteEvaluation:
    """The `Evaluation` port."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    async def usable(
        self, *, after: tuple[str, str] = ("", ""), limit: int
    ) -> Sequence[Conversation]:
        """Some of them, by owner and id."""
        owner, conversation_id = after
        values = {"owner": owner, "id": conversation_id, "rows": limit}
        rows = await self._readers.ask(
            lambda database: database.execute(SQL["usable"], values).fetchall()
        )
        return tuple(conversation_of(row) for row in rows)

    async def is_usable(self, owner: str, conversation_id: str) -> bool:
        """Whether this one may be used now."""
        values = {"owner": owner, "id": conversation_id}
        row = await self._readers.ask(
            lambda database: database.execute(SQL["is_usable"], values).fetchone()
        )
        return row is not None
