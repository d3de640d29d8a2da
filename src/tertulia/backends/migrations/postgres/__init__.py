"""Brings a Postgres database to this version's schema, however many processes start at once.

Alembic only writes the SQL (its offline mode); the one driver that everything else uses runs it.
So migrations are statements: none may read what is stored and go on in Python.
"""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any, Final

from tertulia.backends.migrations import NewerSchema

# Every released schema in order; a database of any other comes from a newer version.
REVISIONS: Final = ("0001",)

# The name of the lock under which a migration runs: any number that no other program uses.
_LOCK: Final = 7_318_005_402_117_264_913
# A migration of large tables takes minutes; whoever waits for another's waits as long.
_TIMEOUT_S: Final = 900.0


async def migrate(connection: Any) -> None:
    """Upgrades the database (which may be empty); NewerSchema when it is ahead of us."""
    if _is_current(await revision_of(connection)):
        return
    async with connection.transaction():
        await connection.execute(
            "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0"
        )
        await connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})", timeout=_TIMEOUT_S)
        found = await revision_of(connection)
        if not _is_current(found):  # nobody else was faster
            script = await asyncio.to_thread(_script, found)
            await connection.execute(script, timeout=_TIMEOUT_S)


async def revision_of(connection: Any) -> str | None:
    """The schema that the database has; None for an empty one."""
    # A look at the table of tables: what asks for a name would be told what it once remembered.
    there = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = $1"
    if await connection.fetchval(there, "alembic_version") is None:
        return None
    found = await connection.fetchval("SELECT version_num FROM alembic_version")
    return str(found) if found is not None else None


def _is_current(found: str | None) -> bool:
    if found is not None and found not in REVISIONS:
        raise NewerSchema(
            f"the database has the schema {found}, and this version knows no later one than "
            f"{REVISIONS[-1]}: start the newer version, or restore an older backup"
        )
    return found == REVISIONS[-1]


def _script(found: str | None) -> str:
    from alembic import command
    from alembic.config import Config

    script = io.StringIO()
    config = Config(output_buffer=script)
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    command.upgrade(config, f"{found or 'base'}:head", sql=True)
    return script.getvalue()
