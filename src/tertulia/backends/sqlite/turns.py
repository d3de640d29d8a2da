"""Turns in SQLite: every call is one step of the writer, so one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from tertulia.backends.sql import statements
from tertulia.backends.sqlite.log import SqliteLog, log_attempt, restart_log
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.rows import message_of, message_values, turn_of, turn_values
from tertulia.backends.sqlite.writer import Writer
from tertulia.backends.transitions import (
    begun,
    finished,
    is_busy,
    noted,
    reply_after,
    reply_message,
    rerun,
    seized,
    user_message,
)
from tertulia.core.quota import Reservation, day_of, reserve
from tertulia.core.types import (
    Admission,
    Admitted,
    Busy,
    KeyReused,
    Limits,
    Missing,
    NewTurn,
    Note,
    Outcome,
    Repeated,
    Spent,
    Status,
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
    if known is not None:
        if known.body_sha != new.body_sha:
            return KeyReused()
        if known.status is not Status.FAILED:
            return Repeated(known)
    parent_id = _place(database, new, known)
    if isinstance(parent_id, Missing | Busy):
        return parent_id
    reservation: Reservation | None = None
    if new.refusal is None:
        answer = reserve(
            spent_of(database, new.owner, now),
            limits,
            prompt_tokens=new.prompt_tokens,
            answer_tokens=new.answer_tokens,
        )
        if not isinstance(answer, Reservation):
            return answer
        reservation = answer
    if known is None:
        return Admitted(_begin(database, new, reservation, parent_id, now))
    return Admitted(_again(database, known, new, reservation, now))


def _place(database: Database, new: NewTurn, known: Turn | None) -> str | Missing | Busy | None:
    """The parent of the user's message, or what is missing or in the way in the tree."""
    if new.kind == "stateless":
        return None
    if new.conversation_id is None or new.user_message_id is None:
        return Missing()
    values = {"owner": new.owner, "id": new.conversation_id}
    if database.execute(CONVERSATIONS["get"], values).fetchone() is None:
        return Missing()
    parent_id = new.parent_id
    if new.kind == "regenerate" or known is not None:
        asked_id = known.user_message_id if known is not None else new.user_message_id
        asked = _message(database, new.owner, asked_id)
        if (
            asked is None
            or asked["role"] != "user"
            or asked["conversation_id"] != new.conversation_id
        ):
            return Missing()
        parent_id = asked["parent_id"]
        new = replace(new, user_message_id=asked["id"])
    elif parent_id is not None:
        parent = _message(database, new.owner, parent_id)
        if parent is None or parent["conversation_id"] != new.conversation_id:
            return Missing()
    of_conversation = {"owner": new.owner, "conversation_id": new.conversation_id}
    for row in database.execute(SQL["open_of_conversation"], of_conversation).fetchall():
        if is_busy(turn_of(row), row["parent_id"], new, parent_id):
            return Busy(row["reply_id"])
    return parent_id


def _begin(
    database: Database,
    new: NewTurn,
    reservation: Reservation | None,
    parent_id: str | None,
    now: float,
) -> Turn:
    turn = begun(new, reservation, now)
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
    database.execute(SQL["add"], turn_values(turn, parent_id))
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
    row = _message(database, turn.owner, turn.reply_id)
    if row is not None:
        message = reply_after(message_of(row), turn, outcome)
        database.execute(MESSAGES["rewrite"], message_values(message))


def _message(database: Database, owner: str, message_id: str | None) -> sqlite3.Row | None:
    values: dict[str, str | None] = {"owner": owner, "id": message_id}
    row: sqlite3.Row | None = database.execute(MESSAGES["find"], values).fetchone()
    return row
