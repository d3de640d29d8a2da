"""Files in Postgres, in parts: each part is a transaction, within the owner's line."""

from __future__ import annotations

from typing import Final, Literal

from tertulia.backends.postgres.database import Database, Transaction
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.sql.batch_rows import cut_out, file_of, part_values
from tertulia.backends.sql.pages import page_by_id
from tertulia.core.files import (
    PART_BYTES,
    UNFINISHED_S,
    FilePart,
    FileRoom,
    NewFile,
    StoredFile,
    Taken,
    Written,
)
from tertulia.core.types import Page

SQL: Final = postgres_statements("files")
TURNS: Final = postgres_statements("turns")


class PostgresFiles:
    """The `Files` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, file: NewFile, part: FilePart, room: FileRoom) -> Written:
        """One transaction: the part, its file if it is the first, or why not."""
        values = {"owner": file.owner, "id": file.id}
        async with (
            self._database.in_line(file.owner, "files"),
            self._database.transaction() as step,
        ):
            # No other upload of this owner looks at his room before this one has ended.
            await step.row(TURNS["pass"], values)
            taken = await step.row(SQL["taken"], values)
            if room.is_full(Taken(**dict(taken)), more=len(part.data)):
                return Written.FULL
            return await append(step, file, part, self._database.now())

    async def find(self, owner: str, file_id: str) -> StoredFile | None:
        """The owner's whole file."""
        values = {"owner": owner, "id": file_id, "now": self._database.now()}
        row = await self._database.row(SQL["find"], values)
        return file_of(row) if row is not None else None

    async def list(
        self,
        owner: str,
        *,
        purpose: str | None,
        after: str | None,
        limit: int,
        order: Literal["asc", "desc"],
    ) -> Page[StoredFile]:
        """One page, by age."""
        values = {
            "owner": owner,
            "purpose": purpose,
            "after": after,
            "rows": limit + 1,
            "now": self._database.now(),
        }
        statement = SQL["oldest" if order == "asc" else "newest"]
        return page_by_id(await self._database.rows(statement, values), limit, file_of)

    async def read(self, owner: str, file_id: str, *, at: int, size: int) -> bytes | None:
        """Bytes of the owner's whole file."""
        values = {
            "owner": owner,
            "id": file_id,
            "now": self._database.now(),
            "at": at,
            "end": at + size,
            "part_bytes": PART_BYTES,
        }
        rows = await self._database.rows(SQL["parts"], values)
        if not rows:
            return None
        return cut_out([row for row in rows if row["data"] is not None], at, size)

    async def delete(self, owner: str, file_id: str | None) -> bool:
        """Takes a file, or all of the owner's, out of everybody's sight."""
        values = {"owner": owner, "id": file_id, "now": self._database.now()}
        row = await self._database.row(SQL["delete"], values)
        return bool(row["files"])

    async def sweep(self, *, parts: int) -> int:
        """Removes what is left of files that nobody can see any more."""
        values = {"now": self._database.now(), "late_s": UNFINISHED_S, "parts": parts}
        await self._database.row(SQL["give_up"], values)
        removed = await self._database.row(SQL["delete_parts"], values)
        await self._database.row(SQL["forget"], values)
        return int(removed["parts"])


async def append(step: Transaction, file: NewFile, part: FilePart, now: float | None) -> Written:
    """The next bytes of a file, within somebody's transaction."""
    values = {**part_values(file, part), "now": now}
    if part.at == 0:
        await step.row(SQL["begin"], values)
    if await step.row(SQL["grow"], values) is None:
        return Written.GONE
    if part.data:
        await step.row(SQL["add_part"], values)
    return Written.DONE
