"""Turns in SQLite: every call is one step of the writer, so one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, Final

from tertulia.backends.sql import statements
from tertulia.backends.sql.rows import (
    balance_values,
    balances_of,
    budgets_json,
    holding_of,
    message_values,
    turn_of,
    turn_values,
)
from tertulia.backends.sqlite.log import SqliteLog, log_attempt, restart_log
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.writer import Writer
from tertulia.backends.transitions import (
    Entrance,
    OpenTurn,
    Placed,
    attempt_of_rerun,
    begun,
    entrance,
    finished,
    joined,
    reply_after,
    reply_message,
    rerun,
    seized,
    user_message,
)
from tertulia.core.deletions import key_mark
from tertulia.core.quota import Settlement, cost, ledger_moment, settle, settling_moment
from tertulia.core.ranks import rank_of, unused_cost, virtual_time, worst_cost
from tertulia.core.types import (
    Admission,
    Admitted,
    Balance,
    Held,
    Limits,
    Message,
    NewTurn,
    Note,
    Outcome,
    Spent,
    Status,
    Turn,
    Usage,
)
from tertulia.ports import Clock

SQL: Final = statements("sqlite", "turns")
MESSAGES: Final = statements("sqlite", "messages")
QUEUE: Final = statements("sqlite", "queue")
CONVERSATIONS: Final = statements("sqlite", "conversations")
BRANCHES: Final = statements("sqlite", "branches")

Database = sqlite3.Connection

# A reply before its turn says anything of it; where it stands in its tree is not written again.
_REPLY: Final = Message("", "", "", None, 0, "assistant", "", 0, "", Status.QUEUED, 0.0)


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
        row = await self._readers.row(SQL["by_reply"], {"owner": owner, "reply_id": reply_id})
        return stored_turn(row) if row is not None else None

    async def find_by_key(self, owner: str, key: str) -> Turn | None:
        """The turn that this owner began under `key`."""
        row = await self._readers.row(SQL["by_key"], {"owner": owner, "key": key})
        return stored_turn(row) if row is not None else None

    async def note(self, held: Held, note: Note) -> bool:
        """Who answers, under an epoch; False when superseded."""

        def step(database: Database) -> bool:
            before = database.execute(SQL["noted"], held._asdict()).fetchone()
            if before is None:
                return False
            values = _note_values(held, note, before)
            database.execute(SQL["note"], values)
            if before["conversation_id"] is not None:
                database.execute(MESSAGES["note"], values)
                if note.pin == "pin":
                    database.execute(CONVERSATIONS["pin_model"], values)
            return True

        return await self._writer.put(step)

    async def finish(self, held: Held, outcome: Outcome) -> bool:
        """Turn, reply and settlement together, once; False when superseded."""
        now = self._clock.now()

        def step(database: Database) -> bool:
            turn = _one(database, "held", held._asdict())
            if turn is None:
                return False
            ended = finished(turn, outcome, now)
            database.execute(SQL["finish"], turn_values(ended, None))
            _show(database, ended, outcome)
            settle_turn(database, turn, outcome.usage, now)
            give_back(database, ended, unused_cost(ended))
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
    """What the owner has used and holds now."""
    open_turns = database.execute(SQL["open_of_owner"], {"owner": owner})
    return _spent(database, owner, _ledger_ms(database, owner), open_turns, now)


def settle_turn(database: Database, turn: Turn, usage: Usage, now: float) -> None:
    """Writes what an ended run cost; the key refuses a second settlement of the same run.

    `turn` still has the budgets that it was admitted under.
    """
    at_ms = settling_moment(_ledger_ms(database, turn.owner), now)
    values = {
        "owner": turn.owner,
        "reply_id": turn.reply_id,
        "epoch": turn.epoch,
        "settled_ms": at_ms,
        "charged": cost("units", usage),
        "input_tokens": usage.input,
        "cached_tokens": usage.cached,
        "output_tokens": usage.output,
        "plan": turn.plan,
        "model": turn.model,
        "budgets": budgets_json(turn.budgets),
    }
    database.execute(SQL["settle"], values)
    _pass(database, turn.owner, at_ms)
    balances = balances_of(database.execute(SQL["balances"], {"owner": turn.owner}))
    put_balances(database, turn.owner, settle(balances, Settlement(turn.budgets, usage, at_ms)))


def give_back(database: Database, turn: Turn, unused: int) -> None:
    """So much did a turn not cost that its owner's tag went up by."""
    values = {"owner": turn.owner, "lane": turn.lane.value, "cost": unused}
    database.execute(QUEUE["give_back"], values)


def put_balances(database: Database, owner: str, balances: Mapping[str, Balance]) -> None:
    """Writes what is used of some budgets."""
    for name, balance in balances.items():
        database.execute(SQL["put_balance"], balance_values(owner, name, balance))


def _admit(new: NewTurn, limits: Limits, now: float, database: Database) -> Admission:
    known = _one(database, "by_key", {"owner": new.owner, "key": new.key})
    door = _Door(database, new, now)
    answer = entrance(new, known, limits, door)
    if not isinstance(answer, Entrance):
        return answer
    _pass(database, new.owner, ledger_moment(None, now))
    if known is None:
        return Admitted(_begin(database, new, limits, answer, door))
    return Admitted(_again(database, known, new, limits, answer, now))


def _ledger_ms(database: Database, owner: str) -> int | None:
    door = database.execute(SQL["ledger"], {"owner": owner}).fetchone()
    return door["ledger_ms"] if door is not None else None


def _pass(database: Database, owner: str, ledger_ms: int) -> None:
    database.execute(SQL["pass"], {"owner": owner, "ledger_ms": ledger_ms})


def _spent(
    database: Database,
    owner: str,
    ledger_ms: int | None,
    open_turns: Iterable[sqlite3.Row],
    now: float,
) -> Spent:
    balances = balances_of(database.execute(SQL["balances"], {"owner": owner}))
    return Spent(ledger_moment(ledger_ms, now), balances, tuple(map(holding_of, open_turns)))


class _Door:
    """What admission looks up: all that is one row each at once, the rest when it is asked for."""

    def __init__(self, database: Database, new: NewTurn, now: float) -> None:
        values = {
            "owner": new.owner,
            "conversation_id": new.conversation_id,
            "key_mark": key_mark(new.key),
        }
        self._row = database.execute(SQL["door"], values).fetchone()
        self._database = database
        self._new = new
        self.now = now
        self.last_seq: int = self._row["last_seq"]
        self.moves: int = self._row["moves"] or 0

    def has_left(self) -> bool:
        return bool(self._row["has_left"])

    def has_conversation(self) -> bool:
        return self._row["moves"] is not None

    def was_deleted(self) -> bool:
        return bool(self._row["was_deleted"])

    def goes_on(self) -> bool:
        values = {"owner": self._new.owner, "key": self._new.key}
        return self._database.execute(SQL["goes_on"], values).fetchone() is not None

    def message(self, message_id: str | None) -> Placed | None:
        values = {"owner": self._new.owner, "id": message_id}
        row = self._database.execute(MESSAGES["place"], values).fetchone()
        return Placed(*row) if row is not None else None

    def open_turns(self) -> Iterator[OpenTurn]:
        for row in self._open:
            if row["conversation_id"] == self._new.conversation_id:
                yield OpenTurn(row["reply_id"], row["user_message_id"], row["parent_id"])

    def spent(self) -> Spent:
        ledger_ms = self._row["ledger_ms"]
        return _spent(self._database, self._new.owner, ledger_ms, self._open, self.now)

    @cached_property
    def _open(self) -> list[sqlite3.Row]:
        return self._database.execute(SQL["open_of_owner"], {"owner": self._new.owner}).fetchall()


def _begin(database: Database, new: NewTurn, limits: Limits, place: Entrance, door: _Door) -> Turn:
    turn = begun(new, limits, place, door.now)
    written = {**turn_values(turn, place.parent_id), "rank": _rank(database, turn)}
    try:
        if turn.conversation_id is not None:
            _add_messages(database, turn, new, door)
            database.execute(CONVERSATIONS["move_head"], _head_values(turn, new.title, door.now))
        database.execute(SQL["add"], written)
    except sqlite3.IntegrityError:
        raise ValueError(f"{turn.reply_id} or {new.user_message_id} is there already") from None
    return turn


def _add_messages(database: Database, turn: Turn, new: NewTurn, door: _Door) -> None:
    """What was asked, if that is new, and the reply, which is shown from now on."""
    seq = door.last_seq + 1
    if new.kind == "message":
        asked = user_message(new, seq, door.now)
        database.execute(MESSAGES["add"], message_values(asked))
        seq += 1
    reply = message_values(reply_message(turn, new, seq), shown=door.moves + 1)
    database.execute(MESSAGES["add"], reply)


def _note_values(held: Held, note: Note, before: sqlite3.Row) -> dict[str, Any]:
    return {
        **held._asdict(),
        "id": before["conversation_id"],
        "attempt": note.attempt,
        "model": note.model,
        "reason": note.reason.value,
        "replica": note.replica,
        "request_id": note.request_id,
        "prompt_tokens": note.prompt_tokens,
        "summary_id": note.summary_id,
        "notices": json.dumps(joined(json.loads(before["notices"]), note.notices)),
    }


def _again(
    database: Database, failed: Turn, new: NewTurn, limits: Limits, place: Entrance, now: float
) -> Turn:
    attempt = attempt_of_rerun(failed, log_attempt(database, failed.reply_id))
    turn = rerun(failed, new, limits, place, now, attempt=attempt)
    _rewrite(database, turn)
    of_turn = {"owner": turn.owner, "reply_id": turn.reply_id}
    database.execute(QUEUE["line_up"], {**of_turn, "rank": _rank(database, turn)})
    restart_log(database, turn.reply_id, turn.epoch, attempt)
    if turn.conversation_id is not None:
        _show(database, turn, None)
        database.execute(CONVERSATIONS["move_head"], _head_values(turn, new.title, now))
        shown = {"owner": turn.owner, "conversation_id": turn.conversation_id}
        database.execute(BRANCHES["mark"], {**shown, "leaf": turn.reply_id})
    return turn


def _rank(database: Database, turn: Turn) -> int:
    """The place of a turn that was admitted in its lane, which is noted; a final one needs none."""
    if turn.status.is_final:
        return 0
    values = {"owner": turn.owner, "lane": turn.lane.value, "reply_id": turn.reply_id}
    found = database.execute(QUEUE["standing"], values).fetchone()
    floor = virtual_time(found["first"], found["highest_tag"])
    rank = rank_of(tag=found["tag"], floor=floor, last=found["last"])
    database.execute(QUEUE["put_tag"], {**values, "tag": rank + worst_cost(turn)})
    return rank


def _head_values(turn: Turn, title: str, now: float) -> dict[str, Any]:
    return {
        "owner": turn.owner,
        "id": turn.conversation_id,
        "reply_id": turn.reply_id,
        "title": title,
        "now": now,
    }


def _one(database: Database, statement: str, values: Mapping[str, object]) -> Turn | None:
    row = database.execute(SQL[statement], values).fetchone()
    return stored_turn(row) if row is not None else None


def stored_turn(row: sqlite3.Row) -> Turn:
    """The turn of a row, by way of a dictionary: a row looks for each name among all of its
    columns, which takes twice as long for so many."""
    return turn_of(dict(zip(row.keys(), row, strict=True)))


def _rewrite(database: Database, turn: Turn) -> None:
    database.execute(SQL["rewrite"], turn_values(turn, None))


def _show(database: Database, turn: Turn, outcome: Outcome | None) -> None:
    """Keeps the reply message in step with its turn."""
    if turn.conversation_id is not None:
        reply = _REPLY._replace(owner=turn.owner, id=turn.reply_id)
        shown = reply_after(reply, turn, outcome)
        database.execute(MESSAGES["rewrite"], message_values(shown))
