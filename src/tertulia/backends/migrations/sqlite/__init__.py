"""Brings a database file to this version's schema, forward only, before anything else opens it.

Alembic is imported only when there is something to do: an ordinary start must not wait for it.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from tertulia.backends.migrations import NewerSchema

# Every released schema in order; a file of any other comes from a newer version.
REVISIONS: Final = ("0001",)


def migrate(path: Path) -> None:
    """Upgrades the file at `path` (which may be empty); NewerSchema when it is ahead of us."""
    found = revision_of(path)
    if found == REVISIONS[-1]:
        return
    if found is not None and found not in REVISIONS:
        raise NewerSchema(
            f"{path} has the schema {found}, and this version knows no later one than "
            f"{REVISIONS[-1]}: start it with the newer version, or restore an older backup"
        )
    _upgrade(path)
    assert revision_of(path) == REVISIONS[-1]


def revision_of(path: Path) -> str | None:
    """The schema that the file has; None for an empty one."""
    database = sqlite3.connect(path)
    try:
        known = database.execute(
            "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'"
        ).fetchone()
        if known is None:
            return None
        row = database.execute("SELECT version_num FROM alembic_version").fetchone()
        return str(row[0]) if row is not None else None
    finally:
        database.close()


def _upgrade(path: Path) -> None:
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import URL, create_engine
    from sqlalchemy.pool import NullPool

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    # The driver by itself commits after each CREATE: a kill in between would leave half a schema.
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=NullPool,
        connect_args={"isolation_level": None},
    )
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    finally:
        engine.dispose()
