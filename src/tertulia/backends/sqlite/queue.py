"""The same turns in SQLite, seen as work with leases, and who is being listened to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tertulia.backends.sql import statements
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.rows import json_list, turn_of
from tertulia.backends.sqlite.writer import Writer
from tertulia.core.types import Turn
from tertulia.ports import Clock

SQL: Final = statements("queue")
TURNS: Final = statements("turns")

Database = sqlite3.Connection


class SqliteQueue:
    """The `Queue` port."""

    def __init__(self, writer: Writer, readers: Readers, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock

    async def claim(self, *, lease_s: float, skip: Sequence[str] = ()) -> Turn | None:
        """The first open turn that nobody holds, at its next epoch."""
        now = self._clock.now()
        values = {"now": now, "until": now + lease_s, "skip": json_list(skip)}

        def step(database: Database) -> Turn | None:
            taken = database.execute(SQL["claim_next"], values).fetchone()
            if taken is None:
                return None
            of_turn = {"owner": taken["owner"], "reply_id": taken["reply_id"]}
            database.execute(SQL["show_running"], of_turn)
            return turn_of(database.execute(TURNS["by_reply"], of_turn).fetchone())

        return await self._writer.put(step)

    async def renew(
        self, held: Sequence[tuple[str, int]], *, lease_s: float
    ) -> frozenset[tuple[str, int]]:
        """Extends leases; returns those that are lost."""
        if not held:
            return frozenset()
        until = self._clock.now() + lease_s
        return await self._writer.put(lambda database: _lease(database, held, until))

    async def release(self, held: Sequence[tuple[str, int]]) -> None:
        """Ends leases now."""
        if held:
            now = self._clock.now()
            await self._writer.put(lambda database: _lease(database, held, now))

    async def abandoned(self, grace_s: Mapping[str, float | None]) -> Sequence[Turn]:
        """Open turns that nobody has followed for their plan's grace."""
        now = self._clock.now()

        def query(database: Database) -> tuple[Turn, ...]:
            found = [
                turn_of(row)
                for plan, grace in grace_s.items()
                if grace is not None
                for row in database.execute(
                    SQL["open_followed_before"], {"plan": plan, "moment": now - grace}
                )
            ]
            return tuple(sorted(found, key=lambda turn: (turn.created_at, turn.reply_id)))

        return await self._readers.ask(query)

    async def stale(self, *, held_age_s: float, queued_age_s: float) -> Sequence[Turn]:
        """Open turns that nobody has held for long."""
        now = self._clock.now()
        values = {"held_before": now - held_age_s, "queued_before": now - queued_age_s}
        return await self._readers.ask(
            lambda database: tuple(turn_of(row) for row in database.execute(SQL["stale"], values))
        )

    async def restarted(self) -> None:
        """Ends every lease and counts every open turn as followed now."""
        values = {"now": self._clock.now()}
        await self._writer.put(lambda database: _change(database, "restart", values))


class SqlitePresence:
    """The `Presence` port."""

    def __init__(self, writer: Writer, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock

    async def seen(self, reply_ids: Iterable[str]) -> None:
        """Marks open turns as followed now, in one statement."""
        followed = list(reply_ids)
        if followed:
            values = {"now": self._clock.now(), "reply_ids": json_list(followed)}
            await self._writer.put(lambda database: _change(database, "seen", values))


def _lease(
    database: Database, held: Sequence[tuple[str, int]], until: float
) -> frozenset[tuple[str, int]]:
    """Moves the leases that are still held to `until`; returns the others."""
    lost = set()
    for reply_id, epoch in held:
        values = {"reply_id": reply_id, "epoch": epoch, "until": until}
        if database.execute(SQL["lease"], values).rowcount == 0:
            lost.add((reply_id, epoch))
    return frozenset(lost)


def _change(database: Database, statement: str, values: Mapping[str, object]) -> None:
    database.execute(SQL[statement], values)
