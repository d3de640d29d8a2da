"""Orders to delete in Postgres, the end of accounts, and the vacuum after them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tertulia.backends.postgres.database import Database, Transaction
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.sql.deletion_rows import (
    deletion_of,
    deletion_values,
    deletions_page,
    deletions_wanted,
)
from tertulia.core.deletions import Deletion, DeletionKind, Place, Scrubbed, name_mark
from tertulia.core.types import Page
from tertulia.ports_of_deletions import Aged, Claimed

SQL: Final = postgres_statements("deletions")
ACCOUNTS: Final = postgres_statements("accounts")
TURNS: Final = postgres_statements("turns")


class PostgresDeletions:
    """The `Deletions` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, *, lease_s: float) -> Claimed | None:
        """The order that has been due longest."""
        values = {"lease_s": lease_s, "now": self._database.now()}
        row = await self._database.row(SQL["claim"], values)
        return Claimed(deletion_of(row), row["now"]) if row is not None else None

    async def save(self, deletion: Deletion, *, pause_s: float) -> bool:
        """What a look found, unless another look came first."""
        values = {**deletion_values(deletion), "pause_s": pause_s, "now": self._database.now()}
        return await self._database.row(SQL["save"], values) is not None

    async def page(self, *, cursor: str | None, limit: int) -> Page[Deletion]:
        """One page, newest first."""
        values = deletions_wanted(cursor=cursor, limit=limit)
        return deletions_page(await self._database.rows(SQL["page"], values), limit)

    async def overdue(self, *, age_s: float) -> int:
        """How many are not over that were given so long ago."""
        values = {"age_s": age_s, "now": self._database.now()}
        row = await self._database.row(SQL["overdue"], values)
        return int(row["orders"])

    async def sweep(self, *, rows: int, kept_s: float) -> int:
        """Removes orders that have been over for long."""
        values = {"rows": rows, "kept_s": kept_s, "now": self._database.now()}
        row = await self._database.row(SQL["sweep"], values)
        return int(row["orders"])


class PostgresErasure:
    """The `Erasure` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def close(self, user_id: str) -> bool:
        """Ends an account, with its credentials. Whoever looked through the owner's door before
        looks again, and finds that he has left."""
        async with self._database.transaction() as step:
            await step.row(TURNS["pass"], {"owner": user_id})
            user = await step.row(ACCOUNTS["find_to_change"], {"id": user_id})
            now, name = self._database.now(), user["name"] if user is not None else ""
            values = {"id": user_id, "name_mark": name_mark(name), "now": now}
            await step.row(SQL["close"], values)
            if user is not None:
                await order(step, user_id, user_id, DeletionKind.ACCOUNT, now)
            return user is not None

    async def left(self, deletion: Deletion) -> frozenset[Place]:
        """Places that hold something still."""
        values = {
            "owner": deletion.owner,
            "target": deletion.target,
            "requested_at": deletion.requested_at,
        }
        row = await self._database.row(SQL["left"], values)
        if deletion.kind is DeletionKind.ACCOUNT:
            return frozenset(place for place in _PLACES if row[place.value])
        stays = deletion.kind is DeletionKind.MESSAGES
        held = {Place.ROWS: row["conversation"] and not stays, Place.LOGS: row["logs"]}
        return frozenset(place for place, is_held in held.items() if is_held)

    async def scrub(self, owner: str, deleted_at: float, /) -> Scrubbed | None:
        """Removes dead rows from the tables of the owner's partition. What the server's own
        write-ahead log holds is not in its power."""
        tables = await self._database.rows(SQL["tables_of"], {"owner": owner})
        names = tuple(sorted(str(row["name"]) for row in tables))
        is_done = await self._database.vacuum(names, since=deleted_at)
        return "vacuumed" if is_done else None

    async def aged(self, kept_s: Mapping[str, float], *, limit: int) -> Sequence[Aged]:
        """What nobody has touched for longer than it is kept."""
        values = {
            "owners": list(kept_s),
            "kept_s": list(kept_s.values()),
            "now": self._database.now(),
            "rows": limit,
        }
        old = await self._database.rows(SQL["aged_conversations"], values)
        return [Aged(row["owner"], row["id"]) for row in old]


async def order(
    step: Transaction, owner: str, target: str, kind: DeletionKind, now: float | None
) -> None:
    """Leaves an order to delete, within the transaction that deletes the rows."""
    rows = "pending" if kind is DeletionKind.ACCOUNT else "deleted"
    values = {"owner": owner, "target": target, "kind": kind.value, "rows": rows, "now": now}
    await step.row(SQL["order"], values)


_PLACES: Final = (Place.ROWS, Place.LOGS, Place.BATCHES, Place.FILES)
