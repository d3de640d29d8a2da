"""Conversations in SQLite, and their deletion down to the last log, in one transaction."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from tertulia.backends.changes import CONVERSATION_FIELDS, demand_changeable, titled_by
from tertulia.backends.sql import statements
from tertulia.backends.sql.pages import (
    bound,
    conversations_page,
    conversations_wanted,
    found_page,
    last_looked,
)
from tertulia.backends.sql.rows import conversation_of, signature_values, turn_of
from tertulia.backends.sqlite.deletions import order
from tertulia.backends.sqlite.log import SqliteLog, bury_logs
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.turns import give_back, settle_turn
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.deletions import kind_of
from tertulia.core.ranks import worst_cost
from tertulia.core.search import looked_through, searched
from tertulia.core.types import Conversation, Page
from tertulia.ports import Clock, StoreUnavailable

SQL: Final = statements("sqlite", "conversations")

Database = sqlite3.Connection


# Searches that may wait or run; the next one is told to come back. Each takes a part of a second.
SEARCHES: Final = 64
# Versions of the system prompt that are kept in memory: one is in use, some in old conversations.
PROMPTS_KEPT: Final = 64


class SqliteConversations:
    """The `Conversations` port."""

    def __init__(self, writer: Writer, readers: Readers, log: SqliteLog, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._log = log
        self._clock = clock
        self._prompts: dict[str, str] = {}
        # One at a time, of all owners: the other threads are for what takes no time.
        self._searching = asyncio.Lock()
        self._searches = 0

    async def create(
        self, owner: str, conversation_id: str, *, key: str | None, prompt_version: str
    ) -> Conversation:
        """A new conversation, or the one that was made with this key (S-19)."""
        now = self._clock.now()

        def step(database: Database) -> Conversation | None:
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
            return _get(database, owner, conversation_id)

        made = await self._writer.put(step)
        assert made is not None
        return made

    async def get(self, owner: str, conversation_id: str) -> Conversation | None:
        """The owner's conversation with its reply in progress."""
        return await self._readers.look(lambda database: _get(database, owner, conversation_id))

    async def list(
        self, owner: str, *, cursor: str | None, limit: int, query: str, archived: bool
    ) -> Page[Conversation]:
        """One page: pinned first, then newest."""
        values = conversations_wanted(owner, cursor=cursor, limit=limit, archived=archived)
        word = searched(query)

        def page(database: Database) -> Page[Conversation]:
            return conversations_page(database.execute(SQL["page"], values).fetchall(), limit)

        def search(database: Database) -> Page[Conversation]:
            wanted = {**values, **signature_values(word), "word": word}
            wanted["looked"] = looked_through(word)
            last = last_looked(database.execute(SQL["last_looked"], wanted).fetchall())
            rows = database.execute(SQL["search"], {**wanted, **bound(last)}).fetchall()
            return found_page(rows, limit, word, last)

        if not word:
            return await self._readers.ask(page)
        with self._counted():
            async with self._searching:
                return await self._readers.ask(search)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        if self._searches >= SEARCHES:
            raise StoreUnavailable("too many searches are waiting: try again in a moment")
        self._searches += 1
        try:
            yield
        finally:
            self._searches -= 1

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
                "titled_by": titled_by(changes) or known.titled_by,
                "pinned": known.pinned,
                "archived": known.archived,
            }
            database.execute(SQL["change"], {**values, **changes})
            return _get(database, owner, conversation_id)

        return await self._writer.put(step)

    async def delete(
        self, owner: str, conversation_id: str | None, *, idle_s: float | None = None
    ) -> tuple[str, ...] | None:
        """Everything of the conversation but the numbers; the reply ids that were open."""
        now = self._clock.now()
        gone: list[str] = []

        def step(database: Database) -> tuple[str, ...] | None:
            gone.clear()  # the step may be taken back and done again
            until = None if idle_s is None else now - idle_s
            of_conversation = {"owner": owner, "id": conversation_id, "until": until}
            aged = database.execute(SQL["aged"], of_conversation).fetchone()
            if conversation_id is not None and aged is None:
                return None
            which = "turns" if conversation_id is not None else "loose_turns"
            rows = database.execute(SQL[f"{which}_of"], of_conversation)
            turns = [turn_of(row) for row in rows]
            running = [turn for turn in turns if not turn.status.is_final]
            for turn in running:
                if turn.epoch > 0:  # it may have used the accelerator: its reservation is its price
                    settle_turn(database, turn, turn.worst_case, now)
                else:
                    give_back(database, turn, worst_cost(turn))
            gone[:] = [turn.reply_id for turn in turns]
            bury_logs(database, gone, now)
            database.execute(SQL[f"delete_{which}"], of_conversation)
            database.execute(SQL["delete"], of_conversation)
            order(database, owner, conversation_id or "", kind_of(conversation_id, idle_s), now)
            self._writer.scrub()
            return tuple(turn.reply_id for turn in running)

        return await self._writer.put(step, lambda _: self._log.forget(gone))

    async def bury_deleted(self) -> int:
        """Nothing: `delete` leaves no log behind."""
        return 0

    async def prompt_text(self, version: str, *, store: str | None = None) -> str | None:
        """The text of a version, stored once and never changed: so it is read once, too."""
        if version in self._prompts and store is None:
            return self._prompts[version]

        def query(database: Database) -> str | None:
            row = database.execute(SQL["prompt"], {"version": version}).fetchone()
            return str(row["text"]) if row is not None else None

        def step(database: Database) -> str | None:
            values = {"version": version, "text": store, "now": self._clock.now()}
            database.execute(SQL["add_prompt"], values)
            return query(database)

        found = await (self._readers.look(query) if store is None else self._writer.put(step))
        if found is not None and len(self._prompts) < PROMPTS_KEPT:
            self._prompts[version] = found
        return found


def _get(database: Database, owner: str, conversation_id: str) -> Conversation | None:
    row = database.execute(SQL["get"], {"owner": owner, "id": conversation_id}).fetchone()
    return conversation_of(row) if row is not None else None
