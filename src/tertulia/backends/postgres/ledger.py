"""The ledger in Postgres: what its balances have to be, by its settlements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tertulia.backends.postgres.database import Database, Transaction
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.sql.rows import balance_values, balances_of, settlement_of
from tertulia.core.quota import drifts, rebuilt
from tertulia.core.types import Drift

SQL: Final = postgres_statements("ledger")


class PostgresLedger:
    """The `Ledger` port. An owner's settlements wait while his are looked at."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def owners(self, *, after: str, limit: int) -> Sequence[str]:
        """Everybody who was ever settled, by id."""
        rows = await self._database.rows(SQL["owners"], {"after": after, "rows": limit})
        return tuple(row["owner"] for row in rows)

    async def check(self, owner: str) -> Mapping[str, Drift]:
        """The balances that are not what the settlements say."""
        async with self._database.transaction() as step:
            return await _drifts(step, owner)

    async def rebuild(self, owner: str) -> Mapping[str, Drift]:
        """The same, and they are what the settlements say afterwards."""
        async with self._database.transaction() as step:
            found = await _drifts(step, owner)
            for name, drift in found.items():
                if drift.due is not None:
                    await step.row(SQL["put"], balance_values(owner, name, drift.due))
            unfounded = [name for name, drift in found.items() if drift.due is None]
            await step.row(SQL["forget"], {"owner": owner, "names": unfounded})
            return found


async def _drifts(step: Transaction, owner: str) -> Mapping[str, Drift]:
    of_owner = {"owner": owner}
    await step.row(SQL["lock"], of_owner)
    due = rebuilt(settlement_of(row) for row in await step.rows(SQL["settlements"], of_owner))
    return drifts(balances_of(await step.rows(SQL["balances"], of_owner)), due)
