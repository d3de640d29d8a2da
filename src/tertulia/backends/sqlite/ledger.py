"""The ledger in SQLite: what its balances have to be, by its settlements."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from tertulia.backends.sql import statements
from tertulia.backends.sql.rows import balances_of, json_list, settlement_of
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.turns import SQL as TURNS
from tertulia.backends.sqlite.turns import put_balances
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.quota import drifts, rebuilt
from tertulia.core.types import Drift

SQL: Final = statements("sqlite", "ledger")

Database = sqlite3.Connection


class SqliteLedger:
    """The `Ledger` port."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def owners(self, *, after: str, limit: int) -> Sequence[str]:
        """Everybody who was ever settled, by id."""
        values = {"after": after, "rows": limit}
        rows = await self._readers.ask(
            lambda database: database.execute(SQL["owners"], values).fetchall()
        )
        return tuple(row["owner"] for row in rows)

    async def check(self, owner: str) -> Mapping[str, Drift]:
        """The balances that are not what the settlements say."""
        return await self._readers.ask(lambda database: _drifts(database, owner))

    async def rebuild(self, owner: str) -> Mapping[str, Drift]:
        """The same, and they are what the settlements say afterwards."""

        def step(database: Database) -> Mapping[str, Drift]:
            found = _drifts(database, owner)
            due = {name: drift.due for name, drift in found.items() if drift.due is not None}
            put_balances(database, owner, due)
            unfounded = json_list([name for name in found if name not in due])
            database.execute(SQL["forget"], {"owner": owner, "names": unfounded})
            return found

        return await self._writer.put(step)


def _drifts(database: Database, owner: str) -> Mapping[str, Drift]:
    of_owner = {"owner": owner}
    due = rebuilt(settlement_of(row) for row in database.execute(SQL["settlements"], of_owner))
    return drifts(balances_of(database.execute(TURNS["balances"], of_owner)), due)
