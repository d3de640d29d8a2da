"""The same turns in SQLite, seen as work with leases, and who is being listened to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tertulia.backends.sql import statements
from tertulia.backends.sql.rows import full_names, json_list, turn_of
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.turns import stored_turn
from tertulia.backends.sqlite.writer import Writer
from tertulia.backends.transitions import claimed
from tertulia.core.types import Held, Lane, Status, Turn
from tertulia.core.waiting import Claimable, LaneState, LineView, lowest_lane
from tertulia.ports import Clock

SQL: Final = statements("sqlite", "queue")

Database = sqlite3.Connection


class SqliteQueue:
    """The `Queue` port."""

    def __init__(self, writer: Writer, readers: Readers, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._clock = clock

    async def claim(
        self, *, lease_s: float, skip: Sequence[str] = (), may: Claimable | None = None
    ) -> Turn | None:
        """The first open turn that nobody holds, at its next epoch."""
        now = self._clock.now()

        def step(database: Database) -> Turn | None:
            lowest = lowest_lane(may, _running(database, may)) if may is not None else Lane.BATCH
            if lowest is None:
                return None
            values = {
                "now": now,
                "skip": json_list(skip),
                "lowest": lowest.value,
                "full": json_list(full_names(may)),
            }
            row = database.execute(SQL["claim_next"], values).fetchone()
            if row is None:
                return None
            found = stored_turn(row)
            turn = claimed(found, now + lease_s)
            of_turn = {**turn.held._asdict(), "lease_until": turn.lease_until}
            database.execute(SQL["take"], {**of_turn, "status": turn.status.value})
            if found.status is Status.QUEUED:
                database.execute(SQL["count_begun"], {"lane": turn.lane.value})
                database.execute(SQL["show_running"], of_turn)
            return turn

        return await self._writer.put(step)

    async def renew(self, held: Sequence[Held], *, lease_s: float) -> frozenset[Held]:
        """Extends leases; returns those that are lost."""
        if not held:
            return frozenset()
        until = self._clock.now() + lease_s
        return await self._writer.put(lambda database: _lease(database, held, until))

    async def release(self, held: Sequence[Held]) -> None:
        """Ends leases now."""
        if held:
            now = self._clock.now()
            await self._writer.put(lambda database: _lease(database, held, now))

    async def abandoned(self) -> Sequence[Turn]:
        """Open turns that nobody has followed for as long as theirs may be left."""
        values = {"now": self._clock.now()}
        return await self._readers.ask(
            lambda database: tuple(
                turn_of(row) for row in database.execute(SQL["abandoned"], values)
            )
        )

    async def stale(self, *, held_age_s: float, queued_age_s: float) -> Sequence[Turn]:
        """Open turns that nobody has held for long."""
        now = self._clock.now()
        values = {
            "held_before": now - held_age_s,
            "queued_before": now - queued_age_s,
            "batch": Lane.BATCH.value,
        }
        return await self._readers.ask(
            lambda database: tuple(turn_of(row) for row in database.execute(SQL["stale"], values))
        )

    async def restarted(self) -> None:
        """Ends every lease and counts every open turn as followed now."""
        values = {"now": self._clock.now()}
        await self._writer.put(lambda database: _change(database, "restart", values))


class SqliteLine:
    """The `Line` port."""

    def __init__(self, readers: Readers, clock: Clock) -> None:
        self._readers = readers
        self._clock = clock

    async def look(self, replies: Iterable[tuple[str, str]]) -> LineView:
        """Each lane's counts, and where these replies stand."""
        now, asked = self._clock.now(), frozenset(replies)

        def query(database: Database) -> LineView:
            counts = {row["lane"]: row for row in database.execute(SQL["lanes"])}
            begun = {row["lane"]: row["turns"] for row in database.execute(SQL["begun"])}
            lanes = {
                lane: LaneState(
                    queued=counts[lane]["queued"] if lane in counts else 0,
                    running=counts[lane]["running"] if lane in counts else 0,
                    begun=begun.get(lane, 0),
                )
                for lane in Lane
            }
            return LineView(
                now,
                lanes,
                _places(database, asked),
                {
                    (Lane(row["lane"]), row["awaited"]): row["queued"]
                    for row in database.execute(SQL["awaiting"])
                },
                {row["model"]: row["running"] for row in database.execute(SQL["running_on"])},
            )

        return await self._readers.look(query)


class SqlitePresence:
    """The `Presence` port."""

    def __init__(self, writer: Writer, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock

    async def seen(self, followed: Iterable[tuple[str, str]]) -> None:
        """Marks open turns as followed now, in one statement."""
        reply_ids = [reply_id for _, reply_id in followed]
        if reply_ids:
            values = {"now": self._clock.now(), "reply_ids": json_list(reply_ids)}
            await self._writer.put(lambda database: _change(database, "seen", values))


def _running(database: Database, may: Claimable) -> dict[Lane, int]:
    """How many turns of each lane run; not counted where it makes no difference."""
    if not may.ranked_slots:
        return {}
    return {Lane(row["lane"]): row["running"] for row in database.execute(SQL["running"])}


def _places(database: Database, asked: frozenset[tuple[str, str]]) -> dict[str, int]:
    if not asked:
        return {}
    values = {"reply_ids": json_list([reply_id for _, reply_id in asked])}
    return {
        row["reply_id"]: row["place"]
        for row in database.execute(SQL["places"], values)
        if (row["owner"], row["reply_id"]) in asked
    }


def _lease(database: Database, held: Sequence[Held], until: float) -> frozenset[Held]:
    """Moves the leases that are still held to `until`; returns the others."""
    lost = set()
    for claim in held:
        values = {**claim._asdict(), "until": until}
        if database.execute(SQL["lease"], values).rowcount == 0:
            lost.add(claim)
    return frozenset(lost)


def _change(database: Database, statement: str, values: Mapping[str, object]) -> None:
    database.execute(SQL[statement], values)
