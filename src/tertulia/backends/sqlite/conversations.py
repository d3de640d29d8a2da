"""Conversations in SQLite, and their deletion down to the last log, in one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any, Final

from tertulia.backends.changes import CONVERSATION_FIELDS, demand_changeable
from tertulia.backends.cursors import read_cursor, searched, write_cursor
from tertulia.backends.sql import statements
from tertulia.backends.sqlite.log import SqliteLog, bury_logs
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.rows import conversation_of, turn_of
from tertulia.backends.sqlite.turns import settle
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.types import Conversation, Page
from tertulia.ports import Clock

SQL: Final = statements("conversations")
# `pinned` is 0 or 1: a place of 2 lies before every row.
_BEFORE_ALL: Final = (2, 0.0, "")

Database = sqlite3.Connection


class SqliteConversations:
    """The `Conversations` port."""

    def __init__(self, writer: Writer, readers: Readers, log: SqliteLog, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._log = log
        self._clock = clock

    async def create(
        self, owner: str, conversation_id: str, *, key: str | None, prompt_version: str
    ) -> Conversation:
        """A new conversation, or the one that was made with this key (S-19)."""
        now = self._clock.now()

        def step(database: Database) -> Conversation:
            made_id = conversation_id
            if key is not None:
                found = database.execute(SQL["by_key"], {"owner": owner, "key": key}).fetchone()
                made_id = found["id"] if found is not None else conversation_id
            known = _get(database, owner, made_id)
            if known is not None:
                return known
            values = {
                "owner": owner,
                "id": conversation_id,
                "key": key,
                "prompt_version": prompt_version,
                "now": now,
            }
            database.execute(SQL["add"], values)
            return Conversation(owner, conversation_id, "", prompt_version, now, now)

        return await self._writer.put(step)

    async def get(self, owner: str, conversation_id: str) -> Conversation | None:
        """The owner's conversation with its reply in progress."""
        return await self._readers.ask(lambda database: _get(database, owner, conversation_id))

    async def list(
        self, owner: str, *, cursor: str | None, limit: int, query: str, archived: bool
    ) -> Page[Conversation]:
        """One page: pinned first, then newest."""
        word = searched(query)
        pinned, updated_at, after = read_cursor(cursor) if cursor is not None else _BEFORE_ALL
        values = {
            "owner": owner,
            "archived": int(archived),
            "pinned": int(pinned),
            "updated_at": updated_at,
            "after": after,
            "word": word,
            "rows": limit + 1,
        }
        rows = await self._readers.ask(
            lambda database: database.execute(SQL["search" if word else "page"], values).fetchall()
        )
        items = tuple(conversation_of(row) for row in rows[:limit])
        if len(rows) <= limit or not items:
            return Page(items, None)
        last = items[-1]
        return Page(items, write_cursor(last.pinned, last.updated_at, last.id))

    async def change(
        self, owner: str, conversation_id: str, changes: Mapping[str, Any]
    ) -> Conversation | None:
        """Touches only the named fields."""
        demand_changeable(changes, CONVERSATION_FIELDS)

        def step(database: Database) -> Conversation | None:
            known = _get(database, owner, conversation_id)
            if known is None:
                return None
            values = {
                "owner": owner,
                "id": conversation_id,
                "title": known.title,
                "pinned": known.pinned,
                "archived": known.archived,
            }
            database.execute(SQL["change"], {**values, **changes})
            return _get(database, owner, conversation_id)

        return await self._writer.put(step)

    async def delete(self, owner: str, conversation_id: str | None) -> tuple[str, ...] | None:
        """Everything of the conversation but the numbers; the reply ids that were open."""
        now = self._clock.now()
        gone: list[str] = []

        def step(database: Database) -> tuple[str, ...] | None:
            of_conversation = {"owner": owner, "id": conversation_id}
            if conversation_id is not None and _get(database, owner, conversation_id) is None:
                return None
            turns = [turn_of(row) for row in database.execute(SQL["turns_of"], of_conversation)]
            running = [turn for turn in turns if not turn.status.is_final]
            for turn in running:
                if turn.epoch > 0:  # it may have used the accelerator: its reservation is its price
                    settle(database, turn, turn.reserved, now)
            gone[:] = [turn.reply_id for turn in turns]
            bury_logs(database, gone, now)
            database.execute(SQL["delete_turns"], of_conversation)
            database.execute(SQL["delete"], of_conversation)
            self._writer.scrub()
            return tuple(turn.reply_id for turn in running)

        return await self._writer.put(step, lambda _: self._log.forget(gone))

    async def prompt_text(self, version: str, *, store: str | None = None) -> str | None:
        """The text of a version, stored once and never changed."""

        def query(database: Database) -> str | None:
            row = database.execute(SQL["prompt"], {"version": version}).fetchone()
            return str(row["text"]) if row is not None else None

        def step(database: Database) -> str | None:
            database.execute(SQL["add_prompt"], {"version": version, "text": store})
            return query(database)

        if store is None:
            return await self._readers.ask(query)
        return await self._writer.put(step)


def _get(database: Database, owner: str, conversation_id: str) -> Conversation | None:
    row = database.execute(SQL["get"], {"owner": owner, "id": conversation_id}).fetchone()
    return conversation_of(row) if row is not None else None
