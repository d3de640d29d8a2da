"""Links to snapshots of branches, in SQLite. The tables' keys delete them with what they show."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from tertulia.backends.sql import statements
from tertulia.backends.sql.rows import branch_of, json_list
from tertulia.backends.sql.share_rows import share_of, share_page_of
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.shares import (
    NewShare,
    NothingToShare,
    Share,
    SharedPage,
    TooManyShares,
    snapshot_of,
)
from tertulia.core.types import HEAD
from tertulia.ports import Clock

SQL: Final = statements("sqlite", "shares")
MESSAGES: Final = statements("sqlite", "messages")
CONVERSATIONS: Final = statements("sqlite", "conversations")

Database = sqlite3.Connection


class SqliteShares:
    """The `Shares` port."""

    def __init__(self, writer: Writer, readers: Readers, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock

    async def add(
        self, new: NewShare, *, limit: int
    ) -> Share | NothingToShare | TooManyShares | None:
        """A new link to what is settled on the branch now."""
        now = self._clock.now()

        def step(database: Database) -> Share | NothingToShare | TooManyShares | None:
            of_owner = {"owner": new.owner, "conversation_id": new.conversation_id}
            wanted = {
                **of_owner,
                "to_head": new.leaf is HEAD,
                "leaf": None if new.leaf is HEAD else new.leaf,
            }
            row = database.execute(MESSAGES["branch"], wanted).fetchone()
            snapshot = snapshot_of(branch_of(row), new.leaf) if row is not None else None
            if snapshot is None or isinstance(snapshot, NothingToShare):
                return snapshot
            if database.execute(SQL["count"], of_owner).fetchone()[0] >= limit:
                return TooManyShares(limit)
            values = {
                **of_owner,
                "id": new.id,
                "leaf_id": snapshot.leaf_id,
                "path_messages": snapshot.path_messages,
                "left_out": json_list(snapshot.left_out),
                "token_hash": new.token_hash,
                "now": now,
            }
            return share_of(database.execute(SQL["add"], values).fetchone())

        return await self._writer.put(step)

    async def list(self, owner: str, conversation_id: str | None) -> Sequence[Share] | None:
        """Newest first."""
        values = {"owner": owner, "conversation_id": conversation_id, "id": conversation_id}

        def query(database: Database) -> Sequence[Share] | None:
            place = database.execute(CONVERSATIONS["get"], values).fetchone()
            if conversation_id is not None and place is None:
                return None
            return tuple(map(share_of, database.execute(SQL["list"], values)))

        return await self._readers.ask(query)

    async def revoke(self, owner: str, share_id: str) -> bool:
        """Removes the owner's own link."""
        values = {"owner": owner, "id": share_id}

        def step(database: Database) -> bool:
            is_gone = database.execute(SQL["revoke"], values).rowcount > 0
            if is_gone:
                self._writer.scrub()  # its title was somebody's words
            return is_gone

        return await self._writer.put(step)

    async def page(self, token_hash: str, *, after: int, limit: int) -> SharedPage | None:
        """Some messages of a link, if its branch is whole."""
        values = {"token_hash": token_hash, "after": after, "rows": limit + 1}
        rows = await self._readers.ask(
            lambda database: database.execute(SQL["shown"], values).fetchall()
        )
        return share_page_of(rows, limit=limit)
