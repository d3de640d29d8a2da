"""Branches in Postgres: which leaf is shown. One transaction deletes a part of a tree; its logs are
buried after that."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from tertulia.backends.postgres.conversations import PostgresConversations, by_age, priced
from tertulia.backends.postgres.database import Database, Transaction
from tertulia.backends.postgres.deletions import order
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.sql.pages import messages_page
from tertulia.backends.sql.rows import conversation_of
from tertulia.backends.transitions import loses_title
from tertulia.core.deletions import DeletionKind
from tertulia.core.types import Conversation, Head, Message, Page
from tertulia.ports import StoreUnavailable

SQL: Final = postgres_statements("branches")
TURNS: Final = postgres_statements("turns")
# The leaf of a branch may be deleted while it is looked for; not again and again.
_TRIES: Final = 3


class PostgresBranches:
    """The `Branches` port."""

    def __init__(self, database: Database, conversations: PostgresConversations) -> None:
        self._database = database
        self._conversations = conversations

    async def page(
        self,
        owner: str,
        conversation_id: str,
        *,
        through: str | Head,
        before: str | None,
        limit: int,
    ) -> Page[Message] | None:
        """The newest `limit` of a branch before `before`, oldest first."""
        values = {
            "owner": owner,
            "conversation_id": conversation_id,
            "through": None if isinstance(through, Head) else through,
            "before": before,
            "rows": limit + 1,
        }
        start = await self._database.row(SQL["start"], values)
        if start is None:
            return None
        rows = await self._database.rows(SQL["path"], {**values, "leaf": start["leaf"]})
        return messages_page(rows, limit)

    async def switch(
        self, owner: str, conversation_id: str, message_id: str
    ) -> Conversation | None:
        """Shows the branch of a message, at the leaf where it was last."""
        values = {"owner": owner, "conversation_id": conversation_id, "id": message_id}
        for _ in range(_TRIES):
            row = await self._database.row(SQL["switch"], values)
            if row is not None:
                return conversation_of(row)
        return None

    async def running(self, owner: str, message_id: str) -> tuple[str, ...] | None:
        """The open replies at or below a message."""
        found = await self._database.rows(SQL["below"], {"owner": owner, "id": message_id})
        if not found:
            return None
        values = {"owner": owner, "ids": [row["id"] for row in found]}
        return tuple(row["reply_id"] for row in await self._database.rows(SQL["open"], values))

    async def delete(self, owner: str, message_id: str) -> tuple[str, ...] | None:
        """A message with all below it, but for the numbers; the reply ids that were open."""
        values: dict[str, Any] = {
            "owner": owner,
            "id": message_id,
            "now": self._database.now(),
        }
        async with self._database.transaction() as step:
            await step.row(TURNS["pass"], values)  # nothing new comes in meanwhile
            place = await step.row(SQL["place"], values)
            if place is None:
                return None
            values["conversation_id"] = place["conversation_id"]
            values["parent_id"] = place["parent_id"]
            values["ids"] = [row["id"] for row in await step.rows(SQL["below"], values)]
            for turn in sorted(await step.rows(SQL["held"], values), key=by_age):
                if turn["epoch"] > 0:  # it may have used the accelerator: that is its price
                    await step.row(TURNS["settle"], priced(turn, values))
            told = await step.row(SQL["told"], values)
            loses = await _loses_title(step, told, values)
            gone = await step.row(SQL["delete"], values)
            if told["head_message_id"] in values["ids"]:
                await step.row(SQL["mend"], values)
            if loses:
                await step.row(SQL["untitle"], values)
            kind = DeletionKind.MESSAGES
            await order(step, owner, place["conversation_id"], kind, values["now"])
        with suppress(StoreUnavailable):  # it is deleted: a chore buries what is left
            await self._conversations.bury([(owner, reply_id) for reply_id in gone["gone"]])
        return tuple(gone["running"])


async def _loses_title(step: Transaction, told: Any, values: dict[str, Any]) -> bool:
    """Asked before the messages are gone."""
    above = await step.row(SQL["answered_above"], values)
    asked = await step.rows(SQL["asked"], values)
    return loses_title(
        told["title"],
        told["titled_by"],
        asked=(row["content"] for row in asked),
        answered_above=above is not None,
    )
