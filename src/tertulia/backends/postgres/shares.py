"""Links to snapshots of branches, in Postgres. Whatever deletes a conversation deletes its links; a
link of whose branch a message is gone shows nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tertulia.backends.postgres.database import Database
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.sql.rows import branch_of
from tertulia.backends.sql.share_rows import share_of, share_page_of
from tertulia.core.shares import (
    NewShare,
    NothingToShare,
    Share,
    SharedPage,
    TooManyShares,
    snapshot_of,
)
from tertulia.core.types import HEAD

SQL: Final = postgres_statements("shares")
MESSAGES: Final = postgres_statements("messages")
TURNS: Final = postgres_statements("turns")


class PostgresShares:
    """The `Shares` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(
        self, new: NewShare, *, limit: int
    ) -> Share | NothingToShare | TooManyShares | None:
        """A new link to what is settled on the branch now."""
        of_owner = {"owner": new.owner, "conversation_id": new.conversation_id}
        wanted = {
            **of_owner,
            "to_head": new.leaf is HEAD,
            "leaf": None if new.leaf is HEAD else new.leaf,
        }
        async with self._database.transaction() as step:
            # The same door as for a deletion: it finds the link, or the link finds nothing.
            await step.row(TURNS["pass"], of_owner)
            row = await step.row(MESSAGES["branch"], wanted)
            snapshot = snapshot_of(branch_of(row), new.leaf) if row is not None else None
            if snapshot is None or isinstance(snapshot, NothingToShare):
                return snapshot
            if (await step.row(SQL["count"], of_owner))["shares"] >= limit:
                return TooManyShares(limit)
            values = {
                **of_owner,
                "id": new.id,
                "leaf_id": snapshot.leaf_id,
                "path_messages": snapshot.path_messages,
                "left_out": list(snapshot.left_out),
                "token_hash": new.token_hash,
                "now": self._database.now(),
            }
            return share_of(await step.row(SQL["add"], values))

    async def list(self, owner: str, conversation_id: str | None) -> Sequence[Share] | None:
        """Newest first."""
        values = {"owner": owner, "conversation_id": conversation_id}
        rows = await self._database.rows(SQL["list"], values)
        if not rows:
            return None
        return tuple(share_of(row) for row in rows if row["id"] is not None)

    async def revoke(self, owner: str, share_id: str) -> bool:
        """Removes the owner's own link."""
        values = {"owner": owner, "id": share_id}
        return await self._database.row(SQL["revoke"], values) is not None

    async def page(self, token_hash: str, *, after: int, limit: int) -> SharedPage | None:
        """Some messages of a link, if its branch is whole."""
        values = {"token_hash": token_hash, "after": after, "rows": limit + 1}
        return share_page_of(await self._database.rows(SQL["shown"], values), limit=limit)
