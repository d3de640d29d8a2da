"""People's own instructions in SQLite."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from tertulia.backends.sql import statements
from tertulia.backends.sql.prompt_rows import instructions_of
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.opening import InstructionsVersion
from tertulia.ports import Clock

SQL: Final = statements("sqlite", "instructions")

Database = sqlite3.Connection


class SqliteInstructions:
    """The `Instructions` port."""

    def __init__(self, writer: Writer, readers: Readers, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock

    async def write(
        self, owner: str, text: str, *, tokens: int, tokenizer: str
    ) -> InstructionsVersion:
        """The next version, unless it says the same."""
        now = self._clock.now()

        def step(database: Database) -> InstructionsVersion:
            newest = _newest(database, owner)
            current = instructions_of(newest)
            if current is not None and current.text == text:
                return current
            version = newest["version"] + 1 if newest is not None else 1
            _add(database, owner, version, (text, tokens, tokenizer), now)
            database.execute(SQL["prune"], {"owner": owner, "version": version})
            self._writer.scrub()
            return InstructionsVersion(version, text, tokens, tokenizer, now)

        return await self._writer.put(step)

    async def current(self, owner: str) -> InstructionsVersion | None:
        """The newest, if it says anything."""
        return instructions_of(await self._readers.row(SQL["current"], {"owner": owner}))

    async def find(self, owner: str, version: int) -> InstructionsVersion | None:
        """A version that was not removed."""
        values = {"owner": owner, "version": version}
        row = await self._readers.row(SQL["find"], values)
        return instructions_of(row)

    async def forget(self, owner: str) -> None:
        """All of them, at once; the last number stays, without a text."""
        now = self._clock.now()

        def step(database: Database) -> None:
            newest = _newest(database, owner)
            if newest is None or not newest["text"]:
                return
            version = newest["version"] + 1
            _add(database, owner, version, ("", 0, ""), now)
            database.execute(SQL["forget"], {"owner": owner, "version": version})
            self._writer.scrub()

        await self._writer.put(step)


def _newest(database: Database, owner: str) -> Any:
    return database.execute(SQL["current"], {"owner": owner}).fetchone()


def _add(
    database: Database, owner: str, version: int, told: tuple[str, int, str], now: float
) -> None:
    text, tokens, tokenizer = told
    values = {
        "owner": owner,
        "version": version,
        "text": text,
        "tokens": tokens,
        "tokenizer": tokenizer,
        "now": now,
    }
    database.execute(SQL["add"], values)
