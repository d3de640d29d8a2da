"""People's own instructions in Postgres. Whoever writes them passes the owner's door."""

from __future__ import annotations

from typing import Any, Final

from tertulia.backends.postgres.database import Database, Transaction
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.sql.prompt_rows import instructions_of
from tertulia.core.opening import InstructionsVersion

SQL: Final = postgres_statements("instructions")
TURNS: Final = postgres_statements("turns")


class PostgresInstructions:
    """The `Instructions` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(
        self, owner: str, text: str, *, tokens: int, tokenizer: str
    ) -> InstructionsVersion:
        """The next version, unless it says the same."""
        async with self._database.transaction() as step:
            newest = await _newest(step, owner)
            current = instructions_of(newest)
            if current is not None and current.text == text:
                return current
            version = newest["version"] + 1 if newest is not None else 1
            row = await self._add(step, owner, version, (text, tokens, tokenizer))
            await step.row(SQL["prune"], {"owner": owner, "version": version})
        written = instructions_of(row)
        assert written is not None
        return written

    async def current(self, owner: str) -> InstructionsVersion | None:
        """The newest, if it says anything."""
        return instructions_of(await self._database.row(SQL["current"], {"owner": owner}))

    async def find(self, owner: str, version: int) -> InstructionsVersion | None:
        """A version that was not removed."""
        values = {"owner": owner, "version": version}
        return instructions_of(await self._database.row(SQL["find"], values))

    async def forget(self, owner: str) -> None:
        """All of them, at once; the last number stays, without a text."""
        async with self._database.transaction() as step:
            newest = await _newest(step, owner)
            if newest is None or not newest["text"]:
                return
            version = newest["version"] + 1
            await self._add(step, owner, version, ("", 0, ""))
            await step.row(SQL["forget"], {"owner": owner, "version": version})

    async def _add(
        self, step: Transaction, owner: str, version: int, told: tuple[str, int, str]
    ) -> Any:
        text, tokens, tokenizer = told
        values = {
            "owner": owner,
            "version": version,
            "text": text,
            "tokens": tokens,
            "tokenizer": tokenizer,
            "now": self._database.now(),
        }
        return await step.row(SQL["add"], values)


async def _newest(step: Transaction, owner: str) -> Any:
    """The newest version; nobody else makes one until the transaction ends."""
    await step.row(TURNS["pass"], {"owner": owner})
    return await step.row(SQL["current"], {"owner": owner})
