"""The rollout of system prompts in SQLite, who is on which version, and who moves."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from tertulia.backends.sql import statements
from tertulia.backends.sql.prompt_rows import (
    footing_of,
    move_values,
    prompt_use_of,
    rollout_of,
    rollout_values,
)
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.opening import Footing
from tertulia.core.rollout import PromptUse, Rollout

SQL: Final = statements("sqlite", "prompts")

Database = sqlite3.Connection


class SqlitePrompts:
    """The `Prompts` port."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self._writer = writer
        self._readers = readers

    async def rollout(self) -> Rollout | None:
        """What was last rolled out."""
        row = await self._readers.row(SQL["rollout"], {})
        return rollout_of(row) if row is not None else None

    async def roll_out(self, seen: Rollout | None, to: Rollout) -> bool:
        """Done exactly if nobody else did anything since."""
        name, values = rollout_values(seen, to)
        done = await self._writer.put(lambda database: database.execute(SQL[name], values).rowcount)
        return done > 0

    async def used(self, *, limit: int, most: int) -> Sequence[PromptUse]:
        """The newest versions."""
        values = {"rows": limit, "most": most}
        rows = await self._readers.ask(
            lambda database: database.execute(SQL["used"], values).fetchall()
        )
        return tuple(prompt_use_of(row) for row in rows)

    async def move(
        self, owner: str, conversation_id: str, *, seen: Footing, to: Footing
    ) -> Footing | None:
        """From one footing to another, once."""
        values = move_values(owner, conversation_id, seen, to)

        def step(database: Database) -> sqlite3.Row | None:
            database.execute(SQL["move"], values)
            row: sqlite3.Row | None = database.execute(SQL["footing"], values).fetchone()
            return row

        row = await self._writer.put(step)
        return footing_of(row) if row is not None else None
