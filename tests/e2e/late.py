"""Half a minute that nobody waits: orders to delete are made older than they are.

What is deleted is looked at once more when whoever was writing has ended. A test that knows that
they have makes the orders as old as that, in the database and beside the running service.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import asyncpg

from tertulia.core.deletions import LATE_S, Place

_AGE = f"""
UPDATE deletions SET requested_at = requested_at - {LATE_S}, due_at = due_at - {LATE_S}
WHERE done_at IS NULL
"""


def are_looked_at(orders: Iterable[dict[str, Any]]) -> bool:
    """Whether all of them were, once at least: only the order's own rows are told of before."""
    return all(Place.DISK in order["reached"] for order in orders)


def age_in_sqlite(database: Path) -> None:
    """Makes every order that is not over half a minute older."""
    connection = sqlite3.connect(database, timeout=10)
    try:
        with connection:
            connection.execute(_AGE)
    finally:
        connection.close()


async def age_in_postgres(url: str) -> None:
    """The same in a fleet's database."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(_AGE)
    finally:
        await connection.close()
