"""Conversations in Postgres. One transaction deletes one; its logs are buried after that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from tertulia.backends.changes import CONVERSATION_FIELDS, demand_changeable, titled_by
from tertulia.backends.postgres.database import Database
from tertulia.backends.postgres.deletions import order
from tertulia.backends.postgres.signature import signature_bits
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.postgres.turns import charges
from tertulia.backends.sql.pages import (
    bound,
    conversations_page,
    conversations_wanted,
    found_page,
    last_looked,
)
from tertulia.backends.sql.rows import conversation_of, holding_of
from tertulia.core.deletions import kind_of
from tertulia.core.search import folded, looked_through, searched
from tertulia.core.types import Conversation, Page
from tertulia.ports import Log, StoreUnavailable

SQL: Final = postgres_statements("conversations")
TURNS: Final = postgres_statements("turns")
# A conversation may be deleted between the two looks of `create`; not again and again.
_TRIES: Final = 3
# Whoever deletes buries the logs within this time; then a chore does it for him.
_OWN_TIME_S: Final = 30.0
# Versions of the system prompt that are kept in memory: one is in use, some in old conversations.
_PROMPTS_KEPT: Final = 64
# Logs that one round of the chore buries.
_BURIED_AT_ONCE: Final = 1000


class PostgresConversations:
    """The `Conversations` port. It buries the logs of what is deleted."""

    def __init__(self, database: Database, log: Log) -> None:
        self._database = database
        self._log = log
        self._prompts: dict[str, str] = {}

    async def create(
        self, owner: str, conversation_id: str, *, key: str | None, prompt_version: str
    ) -> Conversation:
        """A new conversation, or the one that was made with this key (S-19)."""
        values = {
            "owner": owner,
            "id": conversation_id,
            "key": key,
            "prompt_version": prompt_version,
            "now": self._database.now(),
        }
        for _ in range(_TRIES):
            row = await self._database.row(SQL["create"], values)
            if row is None:
                row = await self._database.row(SQL["made"], values)
            if row is not None:
                return conversation_of(row)
        raise StoreUnavailable("the conversation is being made and deleted at the same time")

    async def get(self, owner: str, conversation_id: str) -> Conversation | None:
        """The owner's conversation with its reply in progress."""
        row = await self._database.row(SQL["get"], {"owner": owner, "id": conversation_id})
        return conversation_of(row) if row is not None else None

    async def list(
        self, owner: str, *, cursor: str | None, limit: int, query: str, archived: bool
    ) -> Page[Conversation]:
        """One page: pinned first, then newest."""
        values = conversations_wanted(owner, cursor=cursor, limit=limit, archived=archived)
        word = searched(query)
        if not word:
            return conversations_page(await self._database.rows(SQL["page"], values), limit)
        values |= {"word": word, "signature": signature_bits(word), "looked": looked_through(word)}
        # It looks through all that the owner has ever written: one of his at a time, or his
        # searches alone would take every connection.
        async with self._database.in_line(owner, "search"):
            last = last_looked(await self._database.rows(SQL["last_looked"], values))
            rows = await self._database.rows(SQL["search"], {**values, **bound(last)})
        return found_page(rows, limit, word, last)

    async def change(
        self, owner: str, conversation_id: str, changes: Mapping[str, Any]
    ) -> Conversation | None:
        """Touches only the named fields."""
        demand_changeable(changes, CONVERSATION_FIELDS)
        title, pinned = changes.get("title"), changes.get("pinned")
        values = {
            "owner": owner,
            "id": conversation_id,
            "title": title,
            "folded": folded(title) if title is not None else None,
            "titled_by": titled_by(changes),
            "pinned": int(pinned) if pinned is not None else None,
            "archived": changes.get("archived"),
        }
        row = await self._database.row(SQL["change"], values)
        return conversation_of(row) if row is not None else None

    async def delete(
        self, owner: str, conversation_id: str | None, *, idle_s: float | None = None
    ) -> tuple[str, ...] | None:
        """Everything of the conversation but the numbers; the reply ids that were open."""
        now = self._database.now()
        values = {"owner": owner, "id": conversation_id, "idle_s": idle_s, "now": now}
        async with self._database.transaction() as step:
            await step.row(TURNS["pass"], {"owner": owner})  # nothing new comes in meanwhile
            if await step.row(SQL["may_delete"], values) is None:
                return None
            for turn in sorted(await step.rows(SQL["held"], values), key=by_age):
                if turn["epoch"] > 0:  # it may have used the accelerator: that is its price
                    await step.row(TURNS["settle"], priced(turn, values))
            gone = await step.row(SQL["delete"], values)
            kind = kind_of(conversation_id, idle_s)
            await order(step, owner, conversation_id or "", kind, now)
        with suppress(StoreUnavailable):  # it is deleted: a chore buries what is left
            await self.bury([(owner, reply_id) for reply_id in gone["gone"]])
        return tuple(gone["running"])

    async def bury_deleted(self) -> int:
        """Buries the logs that `delete` did not come to."""
        values = {
            "now": self._database.now(),
            "age_s": _OWN_TIME_S,
            "rows": _BURIED_AT_ONCE,
        }
        left = await self._database.rows(SQL["unburied"], values)
        await self.bury([(row["owner"], row["reply_id"]) for row in left])
        return len(left)

    async def prompt_text(self, version: str, *, store: str | None = None) -> str | None:
        """The text of a version, stored once and never changed: so it is read once, too."""
        if version in self._prompts and store is None:
            return self._prompts[version]
        if store is not None:
            values = {"version": version, "text": store, "now": self._database.now()}
            await self._database.row(SQL["add_prompt"], values)
        row = await self._database.row(SQL["prompt"], {"version": version})
        if row is None:
            return None
        text = str(row["text"])
        if len(self._prompts) < _PROMPTS_KEPT:
            self._prompts[version] = text
        return text

    async def bury(self, logs: Sequence[tuple[str, str]]) -> None:
        """Buries the logs of turns that are deleted, each with its owner."""
        if not logs:
            return
        await self._log.bury([reply_id for _, reply_id in logs])
        values = {
            "owners": [owner for owner, _ in logs],
            "reply_ids": [reply_id for _, reply_id in logs],
        }
        await self._database.row(SQL["buried"], values)


def by_age(turn: Any) -> tuple[float, str]:
    """The order in which open turns are settled: oldest first."""
    return turn["created_at"], turn["reply_id"]


def priced(turn: Any, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """What settles an open turn at its whole reservation."""
    return {
        **values,
        **charges(holding_of(turn).worst_case),
        "reply_id": turn["reply_id"],
        "epoch": turn["epoch"],
        "plan": turn["plan"],
        "model": turn["model"],
        "budgets": turn["budgets"],
    }
