"""Turns in Postgres: admission looks and then writes, every other write is one statement."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tertulia.backends.postgres.database import Database
from tertulia.backends.postgres.signature import signature_bits
from tertulia.backends.postgres.statement import postgres_statements
from tertulia.backends.sql.rows import (
    balances_of,
    failure_json,
    holding_of,
    refusal_json,
    turn_of,
    turn_values,
)
from tertulia.backends.transitions import (
    SEIZE_LEASE_S,
    Entrance,
    OpenTurn,
    Placed,
    begun,
    demand_accepted,
    entrance,
    joined,
    reply_message,
    rerun,
)
from tertulia.core.deletions import key_mark
from tertulia.core.quota import WEIGHTS, cost, ledger_moment
from tertulia.core.ranks import worst_cost
from tertulia.core.search import folded
from tertulia.core.turn import EVENT_OF_END, TRANSITIONS, next_status, pack_ids
from tertulia.core.types import (
    Admission,
    Admitted,
    Held,
    Limits,
    NewTurn,
    Note,
    Outcome,
    Spent,
    Turn,
    Usage,
)
from tertulia.ports import Log, StoreUnavailable

SQL: Final = postgres_statements("turns")

# A failed turn's log is dropped while it is admitted again. Its next writer makes the attempt after
# this one; a claimer who still believed in the failed run may have made the attempt after that.
_ATTEMPTS_ABOVE: Final = 2
# Looks through a door that others keep passing. In each round one of them is let in, and there is
# one a process: so many are enough for a dozen processes and one person.
_LOOKS: Final = 50


class PostgresTurns:
    """The `Turns` port. It drops the log of a turn that is run again."""

    def __init__(self, database: Database, log: Log) -> None:
        self._database = database
        self._log = log

    async def admit(self, turn: NewTurn, limits: Limits) -> Admission:
        """Looks, decides, and writes if nobody passed the owner's door meanwhile."""
        values = {
            "owner": turn.owner,
            "key": turn.key,
            "key_mark": key_mark(turn.key),
            "reply_id": turn.reply_id,
            "conversation_id": turn.conversation_id,
            "user_message_id": turn.user_message_id,
            "parent_id": turn.parent_id,
            "now": self._database.now(),
        }
        async with self._database.in_line(turn.owner, "door"):
            for _ in range(_LOOKS):
                door = _Door(await self._database.row(SQL["door"], values), turn)
                known = door.known()
                place = entrance(turn, known, limits, door)
                if not isinstance(place, Entrance):
                    return place
                if known is not None:
                    again = await self._admit_again(turn, limits, values)
                    if again is not None:
                        return again
                    continue
                new, written = _beginning(turn, limits, place, door)
                if await self._database.row(SQL["begin"], written) is not None:
                    return Admitted(new)
        raise StoreUnavailable("too much is asked for one user at once")

    async def find(self, owner: str, reply_id: str) -> Turn | None:
        """The owner's turn, whatever its status."""
        return await self._one("by_reply", {"owner": owner, "reply_id": reply_id})

    async def find_by_key(self, owner: str, key: str) -> Turn | None:
        """The turn that this owner began under `key`."""
        return await self._one("by_key", {"owner": owner, "key": key})

    async def note(self, held: Held, note: Note) -> bool:
        """Who answers, under an epoch; False when superseded."""
        values = {
            **held._asdict(),
            "attempt": note.attempt,
            "model": note.model,
            "reason": note.reason.value,
            "replica": note.replica,
            "request_id": note.request_id,
            "prompt_tokens": note.prompt_tokens,
            "summary_id": note.summary_id,
            "notices": joined((), note.notices),
            "pins": note.pin == "pin",
        }
        return await self._database.row(SQL["note"], values) is not None

    async def finish(self, held: Held, outcome: Outcome) -> bool:
        """Turn, reply and settlement together, once; False when superseded."""
        event = EVENT_OF_END[outcome.status]
        values = {
            **held._asdict(),
            "from": [status.value for status, events in TRANSITIONS.items() if event in events],
            "now": self._database.now(),
            "status": outcome.status.value,
            "attempt": outcome.attempt,
            "notices": joined((), outcome.notices),
            "finish": outcome.finish.value if outcome.finish is not None else None,
            "text": outcome.text,
            "folded": folded(outcome.text),
            "signature": signature_bits(outcome.text),
            "tokens": len(outcome.ids),
            "tokenizer": outcome.tokenizer,
            "ids": pack_ids(outcome.ids),
            **charges(outcome.usage),
            "refusal": refusal_json(outcome.refusal),
            "failure": failure_json(outcome.failure),
            "last_event_id": outcome.last_event_id,
        }
        if await self._database.row(SQL["finish"], values) is not None:
            return True
        turn = await self.find(held.owner, held.reply_id)
        if turn is not None and turn.held == held and not turn.status.is_final:
            # A mistake of ours, and one of these is its error.
            next_status(turn.status, event)
            demand_accepted(outcome, turn.worst_case)
        return False

    async def seize(self, owner: str, reply_id: str, reason: str) -> Turn | None:
        """A stop's claim, whatever the lease; None if the turn is final or not there."""
        values = {
            "owner": owner,
            "reply_id": reply_id,
            "reason": reason,
            "lease_s": SEIZE_LEASE_S,
            "now": self._database.now(),
        }
        return await self._one("seize", values)

    async def _one(self, statement: str, values: Mapping[str, Any]) -> Turn | None:
        row = await self._database.row(SQL[statement], values)
        return turn_of(row) if row is not None else None

    async def _admit_again(
        self, new: NewTurn, limits: Limits, values: Mapping[str, Any]
    ) -> Admission | None:
        """Runs a failed turn again, unless it was taken away since it was found: then None. Nobody
        else passes the door while its log is dropped."""
        async with self._database.transaction() as step:
            await step.row(SQL["pass"], {"owner": new.owner})
            door = _Door(await step.row(SQL["door"], values), new)
            failed = door.known()
            place = entrance(new, failed, limits, door)
            if not isinstance(place, Entrance):
                return place
            if failed is None:
                return None
            attempt = failed.attempt + _ATTEMPTS_ABOVE
            turn = rerun(failed, new, limits, place, door.now, attempt=attempt)
            written = _values(turn, new, place.parent_id)
            await step.row(SQL["rerun"], {**written, "ledger_ms": door.spent().now_ms})
            # Before the commit: once the turn is open, nobody may meet what its failed run left.
            await self._log.drop(reply_ids=[turn.reply_id])
        return Admitted(turn)


class _Door:
    """What admission looks up, all of it read at once."""

    def __init__(self, row: Any, new: NewTurn) -> None:
        self._row = row
        self._new = new
        self.now: float = row["now"]
        self.passes: int | None = row["passes"]
        self.last_seq: int = row["last_seq"]
        self.is_taken: bool = row["is_taken"]

    def known(self) -> Turn | None:
        """The turn that was begun under this key."""
        return turn_of(self._row) if self._row["reply_id"] is not None else None

    def has_left(self) -> bool:
        return bool(self._row["has_left"])

    def has_conversation(self) -> bool:
        return bool(self._row["has_conversation"])

    def was_deleted(self) -> bool:
        return bool(self._row["was_deleted"])

    def goes_on(self) -> bool:
        return bool(self._row["goes_on"])

    def message(self, message_id: str | None) -> Placed | None:
        for place in json.loads(self._row["messages"] or "[]"):
            found = Placed(*place)
            if found.id == message_id:
                return found
        return None

    def open_turns(self) -> Iterator[OpenTurn]:
        for turn in _rows(self._row["open"]):
            if turn["conversation_id"] == self._new.conversation_id:
                yield OpenTurn(turn["reply_id"], turn["user_message_id"], turn["parent_id"])

    def spent(self) -> Spent:
        return spent_of(self._row)


def spent_of(row: Any) -> Spent:
    """What an owner has used and holds now, from the rows in `balances` and `open`."""
    holdings = tuple(holding_of(turn) for turn in _rows(row["open"]))
    now_ms = ledger_moment(row["ledger_ms"], row["now"])
    return Spent(now_ms, balances_of(_rows(row["balances"])), holdings)


def charges(usage: Usage) -> dict[str, Any]:
    """What `finish` and `settle` write of a usage: its tokens, and what they cost in each unit."""
    return {
        "input_tokens": usage.input,
        "cached_tokens": usage.cached,
        "output_tokens": usage.output,
        "charged": cost("units", usage),
        "charges": json.dumps({unit: cost(unit, usage) for unit in WEIGHTS}),
    }


def _rows(text: str | None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text or "[]")
    return found


def _beginning(
    new: NewTurn, limits: Limits, place: Entrance, door: _Door
) -> tuple[Turn, dict[str, Any]]:
    """A new turn, and the values that write it."""
    turn = begun(new, limits, place, door.now)
    if door.is_taken:
        raise ValueError(f"a turn with the id {turn.reply_id} is there already")
    if new.kind == "message" and door.message(new.user_message_id) is not None:
        raise ValueError(f"a message {new.user_message_id} is there already")
    asked_seq = door.last_seq + 1
    values = {
        **_values(turn, new, place.parent_id),
        "passes": door.passes,
        "ledger_ms": door.spent().now_ms,
        "asked_seq": asked_seq,
        "content": new.content,
        "folded": folded(new.content),
        "signature": signature_bits(new.content),
        "content_tokens": new.content_tokens,
        "tokenizer": new.tokenizer,
        **_reply_values(turn, new, asked_seq),
    }
    return turn, values


def _reply_values(turn: Turn, new: NewTurn, asked_seq: int) -> dict[str, Any]:
    """What `begin` writes of the reply's message, where the turn is of a conversation."""
    seq = asked_seq + 1 if new.kind == "message" else asked_seq
    reply = reply_message(turn, new, seq) if turn.conversation_id is not None else None
    content = reply.content if reply is not None else ""
    return {
        "reply_seq": seq,
        "reply_content": content,
        "reply_folded": folded(content),
        "reply_signature": signature_bits(content),
        "reply_tokens": reply.tokens if reply is not None else 0,
        "reply_tokenizer": reply.tokenizer if reply is not None else "",
    }


def _values(turn: Turn, new: NewTurn, parent_id: str | None) -> dict[str, Any]:
    """What `begin` and `rerun` write of a turn, which is open unless it ended at the door."""
    is_final = turn.status.is_final
    return {
        **turn_values(turn, parent_id),
        "cost": worst_cost(turn),
        "notices": turn.notices,
        "final_status": turn.status.value if is_final else None,
        "final_epoch": turn.epoch if is_final else None,
        "final_followed_at": turn.followed_at if is_final else None,
        "title": new.title,
        "folded_title": folded(new.title),
    }
