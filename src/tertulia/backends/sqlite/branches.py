"""Branches in SQLite: which leaf is shown, and how a part of a tree is deleted in one step."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from tertulia.backends.sql import statements
from tertulia.backends.sql.pages import messages_page
from tertulia.backends.sql.rows import conversation_of, json_list, turn_of
from tertulia.backends.sqlite.deletions import order
from tertulia.backends.sqlite.log import SqliteLog, bury_logs
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.turns import give_back, settle_turn
from tertulia.backends.sqlite.writer import Writer
from tertulia.backends.transitions import loses_title
from tertulia.core.deletions import DeletionKind, key_mark
from tertulia.core.ranks import worst_cost
from tertulia.core.types import Conversation, Head, Message, Page, Turn
from tertulia.ports import Clock

SQL: Final = statements("sqlite", "branches")
CONVERSATIONS: Final = statements("sqlite", "conversations")

Database = sqlite3.Connection


class SqliteBranches:
    """The `Branches` port."""

    def __init__(self, writer: Writer, readers: Readers, log: SqliteLog, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._log = log
        self._clock = clock

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

        def query(database: Database) -> list[sqlite3.Row] | None:
            values = {"owner": owner, "conversation_id": conversation_id, "rows": limit + 1}
            known = database.execute(CONVERSATIONS["get"], {"owner": owner, "id": conversation_id})
            conversation = known.fetchone()
            if conversation is None:
                return None
            for message_id in (through, before):
                if isinstance(message_id, str) and not _is_in(database, values, message_id):
                    return None
            if before is not None:
                leaf = _place(database, owner, before)["parent_id"]
            elif isinstance(through, Head):
                leaf = conversation["head_message_id"]
            else:
                leaf = _leaf(database, values, through)
            return database.execute(SQL["path"], {**values, "leaf": leaf}).fetchall()

        rows = await self._readers.ask(query)
        return messages_page(rows, limit) if rows is not None else None

    async def switch(
        self, owner: str, conversation_id: str, message_id: str
    ) -> Conversation | None:
        """Shows the branch of a message, at the leaf where it was last."""
        values = {"owner": owner, "conversation_id": conversation_id}

        def step(database: Database) -> Conversation | None:
            if not _is_in(database, values, message_id):
                return None
            show_leaf(database, values, _leaf(database, values, message_id))
            known = {"owner": owner, "id": conversation_id}
            return conversation_of(database.execute(CONVERSATIONS["get"], known).fetchone())

        return await self._writer.put(step)

    async def running(self, owner: str, message_id: str) -> tuple[str, ...] | None:
        """The open replies at or below a message."""

        def query(database: Database) -> tuple[str, ...] | None:
            ids = _below(database, owner, message_id)
            if not ids:
                return None
            return tuple(turn.reply_id for turn in _open(_turns(database, owner, ids)))

        return await self._readers.ask(query)

    async def delete(self, owner: str, message_id: str) -> tuple[str, ...] | None:
        """A message with all below it, but for the numbers; the reply ids that were open."""
        now = self._clock.now()
        gone: list[str] = []

        def step(database: Database) -> tuple[str, ...] | None:
            place = _place(database, owner, message_id)
            if place is None:
                return None
            ids = _below(database, owner, message_id)
            turns = _turns(database, owner, ids)
            for turn in _open(turns):
                if turn.epoch > 0:  # it may have used the accelerator: its reservation is its price
                    settle_turn(database, turn, turn.worst_case, now)
                else:
                    give_back(database, turn, worst_cost(turn))
            gone[:] = [turn.reply_id for turn in turns]
            bury_logs(database, gone, now)
            loses = _loses_title(database, owner, place, ids)
            _remove(database, owner, place["conversation_id"], ids)
            for turn in turns:
                dead = {"owner": owner, "key_mark": key_mark(turn.key)}
                dead["conversation_id"] = place["conversation_id"]
                database.execute(SQL["mark_deleted"], dead)
            _mend(database, owner, place, ids, loses_title=loses)
            order(database, owner, place["conversation_id"], DeletionKind.MESSAGES, now)
            self._writer.scrub()
            return tuple(turn.reply_id for turn in _open(turns))

        return await self._writer.put(step, lambda _: self._log.forget(gone))


def show_leaf(database: Database, of_conversation: dict[str, Any], leaf: str | None) -> None:
    """Makes a leaf the head, or nothing in an empty tree."""
    values = {**of_conversation, "leaf": leaf}
    database.execute(SQL["move"], values)
    database.execute(SQL["mark"], values)


def _remove(database: Database, owner: str, conversation_id: str, ids: list[str]) -> None:
    """Removes messages and whatever was made of them: all that else holds their words goes here."""
    values = {"owner": owner, "conversation_id": conversation_id, "ids": json_list(ids)}
    for statement in ("delete_summaries", "delete_tasks", "delete_turns", "delete"):
        database.execute(SQL[statement], values)


def _loses_title(database: Database, owner: str, place: sqlite3.Row, ids: list[str]) -> bool:
    """Asked before they are gone."""
    values = {"owner": owner, "parent_id": place["parent_id"], "ids": json_list(ids)}
    above = database.execute(SQL["answered_above"], values).fetchone()
    return loses_title(
        place["title"],
        place["titled_by"],
        asked=(row["content"] for row in database.execute(SQL["asked"], values)),
        answered_above=above is not None,
    )


def _mend(
    database: Database, owner: str, place: sqlite3.Row, ids: list[str], *, loses_title: bool
) -> None:
    """What a conversation says of itself, once some of its messages are gone."""
    values = {"owner": owner, "conversation_id": place["conversation_id"]}
    if place["head_message_id"] in ids:
        show_leaf(database, values, _leaf(database, values, place["parent_id"]))
    if loses_title:
        database.execute(SQL["untitle"], values)


def _leaf(database: Database, of_conversation: dict[str, Any], top: str | None) -> str | None:
    """Where the branch of a message was last at, or the whole tree without one."""
    name, values = ("leaf", of_conversation) if top is None else ("leaf_below", {"id": top})
    found = database.execute(SQL[name], {**of_conversation, **values}).fetchone()
    return str(found["id"]) if found is not None else None


def _place(database: Database, owner: str, message_id: str) -> Any:
    return database.execute(SQL["place"], {"owner": owner, "id": message_id}).fetchone()


def _is_in(database: Database, of_conversation: dict[str, Any], message_id: str) -> bool:
    place = _place(database, of_conversation["owner"], message_id)
    return place is not None and place["conversation_id"] == of_conversation["conversation_id"]


def _below(database: Database, owner: str, message_id: str) -> list[str]:
    found = database.execute(SQL["below"], {"owner": owner, "id": message_id})
    return [row["id"] for row in found]


def _turns(database: Database, owner: str, reply_ids: list[str]) -> list[Turn]:
    values = {"owner": owner, "ids": json_list(reply_ids)}
    return [turn_of(row) for row in database.execute(SQL["turns_of"], values)]


def _open(turns: list[Turn]) -> list[Turn]:
    return [turn for turn in turns if not turn.status.is_final]
