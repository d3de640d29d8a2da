"""Messages in SQLite: pages, branches and the texts of a prompt."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final, Literal

from tertulia.backends.sql import statements
from tertulia.backends.sql.pages import messages_page
from tertulia.backends.sql.rows import (
    branch_of,
    json_list,
    message_of,
    prompt_message_of,
)
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.types import HEAD, Branch, Head, Message, Page, PromptMessage

SQL: Final = statements("sqlite", "messages")
CONVERSATIONS: Final = statements("sqlite", "conversations")
_AFTER_ALL: Final = 1 << 62

Database = sqlite3.Connection


class SqliteMessages:
    """The `Messages` port."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def page(
        self, owner: str, conversation_id: str, *, before: str | None, limit: int
    ) -> Page[Message] | None:
        """The newest `limit` before `before`, oldest first."""

        def query(database: Database) -> list[sqlite3.Row] | None:
            values = {"owner": owner, "id": conversation_id}
            if database.execute(CONVERSATIONS["get"], values).fetchone() is None:
                return None
            seq = _AFTER_ALL
            if before is not None:
                place = _row(database, owner, before)
                if place is None or place["conversation_id"] != conversation_id:
                    return None
                seq = place["seq"]
            return database.execute(
                SQL["page"],
                {
                    "owner": owner,
                    "conversation_id": conversation_id,
                    "before": seq,
                    "rows": limit + 1,
                },
            ).fetchall()

        rows = await self._readers.ask(query)
        return messages_page(rows, limit) if rows is not None else None

    async def find(self, owner: str, message_id: str) -> Message | None:
        """One message with its tokens."""
        row = await self._readers.row(SQL["find"], {"owner": owner, "id": message_id})
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
        row = await self._readers.row(SQL["branch"], values)
        return branch_of(row) if row is not None else None

    async def texts(self, owner: str, message_ids: Sequence[str]) -> Sequence[PromptMessage]:
        """Texts in the given order; what is not there is left out."""
        values = {"owner": owner, "ids": json_list(message_ids)}
        rows = await self._readers.look(
            lambda database: database.execute(SQL["texts"], values).fetchall()
        )
        found = {row["id"]: prompt_message_of(row) for row in rows}
        return tuple(found[message_id] for message_id in message_ids if message_id in found)

    async def rate(
        self, owner: str, message_id: str, rating: Literal["up", "down"] | None, why: str
    ) -> Message | None:
        """A rating of a reply; nothing else moves (S-23)."""
        values = {"owner": owner, "id": message_id, "rating": rating, "why": why}

        def step(database: Database) -> sqlite3.Row | None:
            if database.execute(SQL["rate"], values).rowcount == 0:
                return None
            return _row(database, owner, message_id)

        row = await self._writer.put(step)
        return message_of(row) if row is not None else None


def _row(database: Database, owner: str, message_id: str) -> sqlite3.Row | None:
    row: sqlite3.Row | None = database.execute(
        SQL["find"], {"owner": owner, "id": message_id}
    ).fetchone()
    return row
