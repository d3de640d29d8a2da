"""`tertulia ledger`: what it says of books that are right, and of such as are not."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from typer.testing import CliRunner, Result

from tertulia.backends.clock import SystemClock
from tertulia.backends.sqlite import SqliteBackend
from tertulia.cli import app
from tests.conformance.world import answered, stateless


def run(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["ledger", *words], env={"TERTULIA_DATA_DIR": str(folder)})


def two_replies(folder: Path) -> None:
    """A database in which two people were charged."""

    async def settle() -> None:
        store = SqliteBackend(folder / "tertulia.sqlite3", SystemClock())
        await answered(store, stateless(1))
        await answered(store, stateless(2, owner="ben"))
        await store.close()

    asyncio.run(settle())


def test_books_that_are_right_are_said_to_be(tmp_path: Path) -> None:
    two_replies(tmp_path)
    ended = run(tmp_path, "check")
    assert (ended.exit_code, ended.stdout) == (0, "2 users, 0 balances are wrong\n")


def test_a_wrong_balance_is_named_and_put_right(tmp_path: Path) -> None:
    two_replies(tmp_path)
    with sqlite3.connect(tmp_path / "tertulia.sqlite3") as database:
        database.execute("UPDATE balances SET used = 7000 WHERE owner = 'ben'")
    database.close()
    ended = run(tmp_path, "check")
    first, last = ended.stdout.splitlines()
    assert ended.exit_code == 1
    assert first.startswith("ben tokens_day: 7 used at ")
    assert " 150 used at " in first
    assert last == "2 users, 1 balances are wrong"
    assert run(tmp_path, "rebuild").exit_code == 0
    assert run(tmp_path, "check").exit_code == 0


def test_without_a_database_there_is_nothing_to_check(tmp_path: Path) -> None:
    ended = run(tmp_path, "check")
    assert ended.exit_code == 1
    assert "There is no database at" in ended.stderr
    assert list(tmp_path.iterdir()) == []
