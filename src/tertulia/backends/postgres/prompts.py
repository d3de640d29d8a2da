"""The rollout of system prompts in Postgres, who is on which version, and who moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tertulia.backends.postgres.database import Database
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.sql.prompt_rows import (
    footing_of,
    move_values,
    prompt_use_of,
    rollout_of,
    rollout_values,
)
from tertulia.core.opening import Footing
from tertulia.core.rollout import PromptUse, Rollout

SQL: Final = postgres_statements("prompts")


class PostgresPrompts:
    """The `Prompts` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def rollout(self) -> Rollout | None:
        """What was last rolled out."""
        row = await self._database.row(SQL["rollout"], {})
        return rollout_of(row) if row is not None else None

    async def roll_out(self, seen: Rollout | None, to: Rollout) -> bool:
        """Done exactly if nobody else did anything since."""
        name, values = rollout_values(seen, to)
        return await self._database.row(SQL[name], values) is not None

    async def used(self, *, limit: int, most: int) -> Sequence[PromptUse]:
        """The newest versions."""
        rows = await self._database.rows(SQL["used"], {"rows": limit, "most": most})
        return tuple(prompt_use_of(row) for row in rows)

    async def move(
        self, owner: str, conversation_id: str, *, seen: Footing, to: Footing
    ) -> Footing | None:
        """From one footing to another, once."""
        values = move_values(owner, conversation_id, seen, to)
        row = await self._database.row(SQL["move"], values)
        if row is None:  # what another has moved meanwhile only a second look sees
            row = await self._database.row(SQL["footing"], values)
        return footing_of(row) if row is not None else None
