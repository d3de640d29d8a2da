"""Files in SQLite, in parts: each is a transaction, and none is larger than a commit may be."""

from __future__ import annotations

import sqlite3
from typing import Final, Literal

from tertulia.backends.sql import statements
from tertulia.backends.sql.batch_rows import cut_out, file_of, part_values
from tertulia.backends.sql.pages import page_by_id
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.writer import Writer
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
from tertulia.ports import Clock

SQL: Final = statements("sqlite", "files")

Database = sqlite3.Connection


class SqliteFiles:
    """The `Files` port."""

    def __init__(self, writer: Writer, readers: Readers, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock

    async def write(self, file: NewFile, part: FilePart, room: FileRoom) -> Written:
        """One transaction: the part, its file if it is the first, or why not."""
        now = self._clock.now()

        def step(database: Database) -> Written:
            values = {"owner": file.owner, "id": file.id}
            taken = database.execute(SQL["taken"], values).fetchone()
            if room.is_full(Taken(**dict(taken)), more=len(part.data)):
                return Written.FULL
            return append(database, file, part, now)

        return await self._writer.put(step)

    async def find(self, owner: str, file_id: str) -> StoredFile | None:
        """The owner's whole file."""
        values = {"owner": owner, "id": file_id, "now": self._clock.now()}
        row = await self._readers.ask(
            lambda database: database.execute(SQL["find"], values).fetchone()
        )
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
        statement = SQL["oldest" if order == "asc" else "newest"]
        values = {
            "owner": owner,
            "purpose": purpose,
            "after": after,
            "rows": limit + 1,
            "now": self._clock.now(),
        }
        rows = await self._readers.ask(
            lambda database: database.execute(statement, values).fetchall()
        )
        return page_by_id(rows, limit, file_of)

    async def read(self, owner: str, file_id: str, *, at: int, size: int) -> bytes | None:
        """Bytes of the owner's whole file."""
        values = {
            "owner": owner,
            "id": file_id,
            "now": self._clock.now(),
            "at": at,
            "end": at + size,
            "part_bytes": PART_BYTES,
        }

        def query(database: Database) -> bytes | None:
            if database.execute(SQL["find"], values).fetchone() is None:
                return None
            return cut_out(database.execute(SQL["parts"], values).fetchall(), at, size)

        return await self._readers.ask(query)

    async def delete(self, owner: str, file_id: str | None) -> bool:
        """Takes a file, or all of the owner's, out of everybody's sight."""
        values = {"owner": owner, "id": file_id, "now": self._clock.now()}
        return await self._writer.put(
            lambda database: database.execute(SQL["delete"], values).rowcount > 0
        )

    async def sweep(self, *, parts: int) -> int:
        """Removes what is left of files that nobody can see any more."""
        now = self._clock.now()
        values = {"now": now, "late": now - UNFINISHED_S, "parts": parts}

        def step(database: Database) -> int:
            database.execute(SQL["give_up"], values)
            removed: int = database.execute(SQL["delete_parts"], values).rowcount
            database.execute(SQL["forget"], {})
            if removed:
                self._writer.scrub()
            return removed

        return await self._writer.put(step)


def append(database: Database, file: NewFile, part: FilePart, now: float) -> Written:
    """The next bytes of a file, within somebody's transaction."""
    values = {**part_values(file, part), "now": now}
    if part.at == 0:
        database.execute(SQL["begin"], values)
    if database.execute(SQL["grow"], values).rowcount == 0:
        return Written.GONE
    if part.data:
        database.execute(SQL["add_part"], values)
    return Written.DONE
