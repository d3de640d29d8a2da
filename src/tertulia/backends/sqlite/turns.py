"""Turns in SQLite: every call is one step of the writer, so one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from tertulia.backends.sql import statements
from tertulia.backends.sqlite.log import SqliteLog, log_attempt, restart_log
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.rows import message_of, message_values, turn_of, turn_values
from tertulia.backends.sqlite.writer import Writer
from tertulia.backends.transitions import (
    Entrance,
    begun,
    entrance,
    finished,
    noted,
    reply_after,
    reply_message,
    rerun,
    seized,
    user_message,
)
from tertulia.core.quota import Reservation, day_of
from tertulia.core.types import (
    Admission,
    Admitted,
    Limits,
    Message,
    NewTurn,
    Note,
    Outcome,
    Spent,
    Turn,
)
from tertulia.ports import Clock

SQL: Final = statements("turns")
MESSAGES: Final = statements("messages")
CONVERSATIONS: Final = statements("conversations")

Database = sqlite3.Connection


class SqliteTurns:
    """The `Turns` port."""

    def __init__(self, writer: Writer, readers: Readers, log: SqliteLog, clock: Clock) -> None:
        self._writer = writer
        self._readers = readers
        self._log = log
        self._clock = clock

    async def admit(self, turn: NewTurn, limits: Limits) -> Admission:
        """One transaction: see the port for the order of the answers."""

        def after(answer: Admission) -> None:
            if isinstance(answer, Admitted) and answer.turn.epoch > 0:  # run again: new log
                self._log.forget([answer.turn.reply_id])

        return await self._writer.put(partial(_admit, turn, limits, self._clock.now()), after)

    async def find(self, owner: str, reply_id: str) -> Turn | None:
        """The owner's turn, whatever its status."""
        values = {"owner": owner, "reply_id": reply_id}
        return await self._readers.ask(lambda database: _one(database, "by_reply", values))

    async def find_by_key(self, owner: str, key: str) -> Turn | None:
        """The turn that this owner began under `key`."""
        values = {"owner": owner, "key": key}
        return await self._readers.ask(lambda database: _one(database, "by_key", values))

    async def note(self, reply_id: str, epoch: int, note: Note) -> bool:
        """Who answers, under an epoch; False when superseded."""

        def step(database: Database) -> bool:
            turn = _held(database, reply_id, epoch)
            if turn is None:
                return False
            turn = noted(turn, note)
            _rewrite(database, turn)
            _show(database, turn, None)
            if note.pin == "pin" and turn.conversation_id is not None:
                values = {"owner": turn.owner, "id": turn.conversation_id, "model": note.model}
                database.execute(CONVERSATIONS["pin_model"], values)
            return True

        return await self._writer.put(step)

    async def finish(self, reply_id: str, epoch: int, outcome: Outcome) -> bool:
        """Turn, reply and settlement together, once; False when superseded."""
        now = self._clock.now()

        def step(database: Database) -> bool:
            turn = _held(database, reply_id, epoch)
            if turn is None:
                return False
            turn = finished(turn, outcome, now)
            _rewrite(database, turn)
            _show(database, turn, outcome)
            settle(database, turn, outcome.charged, now)
            return True

        return await self._writer.put(step)

    async def seize(self, owner: str, reply_id: str, reason: str) -> Turn | None:
        """A stop's claim, whatever the lease; None if the turn is final or not there."""
        now = self._clock.now()

        def step(database: Database) -> Turn | None:
            turn = _one(database, "by_reply", {"owner": owner, "reply_id": reply_id})
            if turn is None or turn.status.is_final:
                return None
            turn = seized(turn, reason, now)
            _rewrite(database, turn)
            return turn

        return await self._writer.put(step)


def spent_of(database: Database, owner: str, now: float) -> Spent:
    """What the owner has used today and holds now."""
    day, day_ends_at = day_of(now)
    used = database.execute(SQL["used_on"], {"owner": owner, "day": day}).fetchone()[0]
    running = database.execute(SQL["open_of_owner"], {"owner": owner}).fetchall()
    reserved = sum(row["reserved"] for row in running)
    return Spent(used, reserved, tuple(row["reply_id"] for row in running), day_ends_at)


def settle(database: Database, turn: Turn, charged: int, now: float) -> None:
    """Writes what an ended run cost; the key refuses a second settlement of the same run."""
    values = {
        "owner": turn.owner,
        "day": day_of(now)[0],
        "reply_id": turn.reply_id,
        "epoch": turn.epoch,
        "settled_at": now,
        "charged": charged,
        "input_tokens": turn.usage.input,
        "cached_tokens": turn.usage.cached,
        "output_tokens": turn.usage.output,
        "plan": turn.plan,
        "model": turn.model,
    }
    database.execute(SQL["settle"], values)


def _admit(new: NewTurn, limits: Limits, now: float, database: Database) -> Admission:
    known = _one(database, "by_key", {"owner": new.owner, "key": new.key})
    answer = entrance(new, known, limits, _Lookup(database, new, now))
    if not isinstance(answer, Entrance):
        return answer
    if known is None:
        return Admitted(_begin(database, new, answer, now))
    return Admitted(_again(database, known, new, answer.reservation, now))


@dataclass(frozen=True, slots=True)
class _Lookup:
    """What admission looks up."""

    database: Database
    new: NewTurn
    now: float

    def has_conversation(self) -> bool:
        values = {"owner": self.new.owner, "id": self.new.conversation_id}
        return self.database.execute(CONVERSATIONS["get"], values).fetchone() is not None

    def message(self, message_id: str | None) -> Message | None:
        return _message(self.database, self.new.owner, message_id)

    def open_turns(self) -> Iterator[tuple[Turn, str | None]]:
        values = {"owner": self.new.owner, "conversation_id": self.new.conversation_id}
        for row in self.database.execute(SQL["open_of_conversation"], values).fetchall():
            yield turn_of(row), row["parent_id"]

    def spent(self) -> Spent:
        return spent_of(self.database, self.new.owner, self.now)


def _begin(database: Database, new: NewTurn, place: Entrance, now: float) -> Turn:
    turn = begun(new, place.reservation, now)
    if database.execute(SQL["is_there"], {"reply_id": turn.reply_id}).fetchone() is not None:
        raise ValueError(f"a turn with the id {turn.reply_id} is there already")
    if turn.conversation_id is not None:
        values = {"owner": turn.owner, "conversation_id": turn.conversation_id}
        seq = 1 + database.execute(MESSAGES["last_seq"], values).fetchone()[0]
        if new.kind == "message":
            if _message(database, new.owner, new.user_message_id) is not None:
                raise ValueError(f"a message {new.user_message_id} is there already")
            message = user_message(new, seq, now)
            database.execute(MESSAGES["add"], message_values(message))
            seq += 1
        database.execute(MESSAGES["add"], message_values(reply_message(turn, seq)))
        _move_head(database, turn, new.title, now)
    database.execute(SQL["add"], turn_values(turn, place.parent_id))
    return turn


def _again(
    database: Database, failed: Turn, new: NewTurn, reservation: Reservation | None, now: float
) -> Turn:
    attempt = max(failed.attempt, log_attempt(database, failed.reply_id)) + 1
    turn = rerun(failed, new, reservation, now, attempt=attempt)
    _rewrite(database, turn)
    restart_log(database, turn.reply_id, turn.epoch, attempt)
    if turn.conversation_id is not None:
        _show(database, turn, None)
        _move_head(database, turn, new.title, now)
    return turn


def _move_head(database: Database, turn: Turn, title: str, now: float) -> None:
    values = {
        "owner": turn.owner,
        "id": turn.conversation_id,
        "reply_id": turn.reply_id,
        "title": title,
        "now": now,
    }
    database.execute(CONVERSATIONS["move_head"], values)


def _held(database: Database, reply_id: str, epoch: int) -> Turn | None:
    """The open turn if `epoch` is still its epoch."""
    return _one(database, "held", {"reply_id": reply_id, "epoch": epoch})


def _one(database: Database, statement: str, values: Mapping[str, object]) -> Turn | None:
    row = database.execute(SQL[statement], values).fetchone()
    return turn_of(row) if row is not None else None


def _rewrite(database: Database, turn: Turn) -> None:
    database.execute(SQL["rewrite"], turn_values(turn, None))


def _show(database: Database, turn: Turn, outcome: Outcome | None) -> None:
    """Keeps the reply message in step with its turn."""
    message = _message(database, turn.owner, turn.reply_id)
    if message is not None:
        database.execute(MESSAGES["rewrite"], message_values(reply_after(message, turn, outcome)))


def _message(database: Database, owner: str, message_id: str | None) -> Message | None:
    values: dict[str, str | None] = {"owner": owner, "id": message_id}
    row = database.execute(MESSAGES["find"], values).fetchone()
    return message_of(row) if row is not None else None
