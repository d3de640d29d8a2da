"""Messages in Postgres: pages, branches and the texts of a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from tertulia.backends.postgres.database import Database
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.sql.pages import messages_page
from tertulia.backends.sql.rows import branch_of, message_of, prompt_message_of
from tertulia.core.types import HEAD, Branch, Head, Message, Page, PromptMessage

SQL: Final = postgres_statements("messages")


class PostgresMessages:
    """The `Messages` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, owner: str, conversation_id: str, *, before: str | None, limit: int
    ) -> Page[Message] | None:
        """The newest `limit` before `before`, oldest first."""
        values = {
            "owner": owner,
            "conversation_id": conversation_id,
            "before": before,
            "rows": limit + 1,
        }
        found = await self._database.rows(SQL["page"], values)
        if not found:
            return None
        rows = [row for row in found if row["id"] is not None]
        return messages_page(rows, limit)

    async def find(self, owner: str, message_id: str) -> Message | None:
        """One message with its tokens."""
        row = await self._database.row(SQL["find"], {"owner": owner, "id": message_id})
        return message_of(row) if row is not None else None

    async def branch(
        self, owner: str, conversation_id: str, leaf: str | Head | None
    ) -> Branch | None:
        """From the root to `leaf`, and what the conversation keeps to."""
        values = {
            "owner": owner,
            "conversation_id": conversation_id,
            "to_head": leaf is HEAD,
            "leaf": None if leaf is HEAD else leaf,
        }
        row = await self._database.row(SQL["branch"], values)
        return branch_of(row) if row is not None else None

    async def texts(self, owner: str, message_ids: Sequence[str]) -> Sequence[PromptMessage]:
        """Texts in the given order; what is not there is left out."""
        values = {"owner": owner, "ids": list(message_ids)}
        rows = await self._database.rows(SQL["texts"], values)
        found = {row["id"]: prompt_message_of(row) for row in rows}
        return tuple(found[message_id] for message_id in message_ids if message_id in found)

    async def rate(
        self, owner: str, message_id: str, rating: Literal["up", "down"] | None, why: str
    ) -> Message | None:
        """A rating of a reply; nothing else moves (S-23)."""
        values = {"owner": owner, "id": message_id, "rating": rating, "why": why}
        row = await self._database.row(SQL["rate"], values)
        return message_of(row) if row is not None else None
