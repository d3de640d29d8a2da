"""The same turns in Postgres, seen as work with leases, and who is being listened to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from tertulia.backends.postgres.database import Database
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.sql.rows import full_names, turn_of
from tertulia.core.types import Held, Lane, Turn
from tertulia.core.waiting import Claimable, LaneState, LineView

SQL: Final = postgres_statements("queue")

# What a chore ends in one round; the next round goes on.
SWEPT_AT_ONCE: Final = 1000


class PostgresQueue:
    """The `Queue` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(
        self, *, lease_s: float, skip: Sequence[str] = (), may: Claimable | None = None
    ) -> Turn | None:
        """The first open turn that nobody holds, at its next epoch."""
        may = may if may is not None else Claimable(Lane.BATCH, ranked_slots=0)
        values = {
            "lease_s": lease_s,
            "skip": list(skip),
            "lowest": may.lowest.value if may.lowest is not None else None,
            "ranked_slots": may.ranked_slots,
            "full": full_names(may),
            "now": self._database.now(),
        }
        row = await self._database.row(SQL["claim"], values)
        return turn_of(row) if row is not None else None

    async def renew(self, held: Sequence[Held], *, lease_s: float) -> frozenset[Held]:
        """Extends leases; returns those that are lost."""
        return await self._lease(held, lease_s)

    async def release(self, held: Sequence[Held]) -> None:
        """Ends leases now."""
        await self._lease(held, 0.0)

    async def abandoned(self) -> Sequence[Turn]:
        """Open turns that nobody has followed for as long as theirs may be left."""
        values = {"now": self._database.now(), "rows": SWEPT_AT_ONCE}
        return tuple(turn_of(row) for row in await self._database.rows(SQL["abandoned"], values))

    async def stale(self, *, held_age_s: float, queued_age_s: float) -> Sequence[Turn]:
        """Open turns that nobody has held for long."""
        values = {
            "held_age_s": held_age_s,
            "queued_age_s": queued_age_s,
            "batch": Lane.BATCH.value,
            "now": self._database.now(),
            "rows": SWEPT_AT_ONCE,
        }
        return tuple(turn_of(row) for row in await self._database.rows(SQL["stale"], values))

    async def restarted(self) -> None:
        """Ends every lease and counts every open turn as followed now."""
        await self._database.row(SQL["restart"], {"now": self._database.now()})

    async def _lease(self, held: Sequence[Held], lease_s: float) -> frozenset[Held]:
        if not held:
            return frozenset()
        values = {
            "owners": [claim.owner for claim in held],
            "reply_ids": [claim.reply_id for claim in held],
            "epochs": [claim.epoch for claim in held],
            "lease_s": lease_s,
            "now": self._database.now(),
        }
        lost = await self._database.rows(SQL["lease"], values)
        return frozenset(Held(*row) for row in lost)


class PostgresLine:
    """The `Line` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def look(self, replies: Iterable[tuple[str, str]]) -> LineView:
        """Each lane's counts, and where these replies stand."""
        asked = frozenset(replies)
        values = {
            "reply_ids": [reply_id for _, reply_id in asked],
            "now": self._database.now(),
        }
        row = await self._database.row(SQL["look"], values)
        counts = {lane: (queued, running) for lane, queued, running in _rows(row["lanes"])}
        begun = dict(_rows(row["begun"]))
        return LineView(
            row["at"],
            {lane: LaneState(*counts.get(lane, (0, 0)), begun.get(lane, 0)) for lane in Lane},
            {
                reply_id: place
                for owner, reply_id, place in _rows(row["places"])
                if (owner, reply_id) in asked
            },
            {(Lane(lane), awaited): n for lane, awaited, n in _rows(row["awaiting"])},
            dict(_rows(row["running_on"])),
        )


class PostgresPresence:
    """The `Presence` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def seen(self, followed: Iterable[tuple[str, str]]) -> None:
        """Marks open turns as followed now, in one statement."""
        pairs = tuple(followed)
        if pairs:
            values = {
                "owners": [owner for owner, _ in pairs],
                "reply_ids": [reply_id for _, reply_id in pairs],
                "now": self._database.now(),
            }
            await self._database.row(SQL["seen"], values)


def _rows(text: str | None) -> list[Any]:
    found: list[Any] = json.loads(text or "[]")
    return found
