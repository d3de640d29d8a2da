"""Turns in memory: admission and everything that is written under an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tertulia.backends.memory.log import MemoryLog
from tertulia.backends.memory.store import MemoryStore
from tertulia.backends.transitions import (
    Entrance,
    OpenTurn,
    attempt_of_rerun,
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
from tertulia.core.ranks import unused_cost
from tertulia.core.types import (
    Admission,
    Admitted,
    Held,
    Limits,
    Message,
    NewTurn,
    Note,
    Outcome,
    Spent,
    Turn,
)


class MemoryTurns:
    """The `Turns` port. It empties the log of a turn that is run again."""

    def __init__(self, store: MemoryStore, log: MemoryLog) -> None:
        self._store = store
        self._log = log

    async def admit(self, turn: NewTurn, limits: Limits) -> Admission:
        """One step: see the port for the order of the answers."""
        store, now = self._store, self._store.clock.now()
        known = await self.find_by_key(turn.owner, turn.key)
        answer = entrance(turn, known, limits, _Lookup(store, turn, now))
        if not isinstance(answer, Entrance):
            return answer
        if known is None:
            admitted = Admitted(self._begin(turn, limits, answer, now))
        else:
            admitted = Admitted(self._again(known, turn, limits, answer, now))
        store.pass_door(turn.owner, now)
        return admitted

    async def find(self, owner: str, reply_id: str) -> Turn | None:
        """The owner's turn, whatever its status."""
        turn = self._store.turns.get(reply_id)
        return turn if turn is not None and turn.owner == owner else None

    async def find_by_key(self, owner: str, key: str) -> Turn | None:
        """The turn that this owner began under `key`."""
        reply_id = self._store.turn_keys.get((owner, key))
        return self._store.turns[reply_id] if reply_id is not None else None

    async def note(self, held: Held, note: Note) -> bool:
        """Who answers, under an epoch; False when superseded."""
        turn = self._held(held)
        if turn is None:
            return False
        turn = noted(turn, note)
        self._store.put_turn(turn)
        self._show(turn, None)
        if note.pin == "pin" and turn.conversation_id is not None:
            key = (turn.owner, turn.conversation_id)
            self._store.conversations[key] = replace(
                self._store.conversations[key], model=note.model
            )
        return True

    async def finish(self, held: Held, outcome: Outcome) -> bool:
        """Turn, reply and settlement together, once; False when superseded."""
        turn = self._held(held)
        if turn is None:
            return False
        now = self._store.clock.now()
        ended = finished(turn, outcome, now)
        self._store.put_turn(ended)
        self._show(ended, outcome)
        self._store.settle(turn, outcome.usage, now)
        self._store.give_back(ended, unused_cost(ended))
        return True

    async def seize(self, owner: str, reply_id: str, reason: str) -> Turn | None:
        """A stop's claim, whatever the lease; None if the turn is final or not there."""
        turn = self._store.turns.get(reply_id)
        if turn is None or turn.owner != owner or turn.status.is_final:
            return None
        turn = seized(turn, reason, self._store.clock.now())
        self._store.put_turn(turn)
        return turn

    def _begin(self, new: NewTurn, limits: Limits, place: Entrance, now: float) -> Turn:
        store = self._store
        turn = begun(new, limits, place, now)
        if turn.reply_id in store.turns:
            raise ValueError(f"a turn with the id {turn.reply_id} is there already")
        if turn.conversation_id is not None:
            ids = store.message_ids[turn.owner, turn.conversation_id]
            seq = 1 + (store.messages[turn.owner, ids[-1]].seq if ids else 0)
            if new.kind == "message":
                if (new.owner, new.user_message_id or "") in store.messages:
                    raise ValueError(f"a message {new.user_message_id} is there already")
                store.put_message(user_message(new, seq, now))
                seq += 1
            store.put_message(reply_message(turn, new, seq))
            self._move_head(turn, new.title, now)
        store.put_turn(turn)
        store.line_up(turn)
        store.turn_keys[turn.owner, turn.key] = turn.reply_id
        return turn

    def _again(
        self, failed: Turn, new: NewTurn, limits: Limits, place: Entrance, now: float
    ) -> Turn:
        attempt = attempt_of_rerun(failed, self._log.attempt(failed.reply_id))
        turn = rerun(failed, new, limits, place, now, attempt=attempt)
        self._store.put_turn(turn)
        self._store.line_up(turn)
        self._log.restart(turn.reply_id, fence=turn.epoch, attempt=attempt)
        if turn.conversation_id is not None:
            self._show(turn, None)
            self._move_head(turn, new.title, now)
        return turn

    def _move_head(self, turn: Turn, title: str, now: float) -> None:
        key = (turn.owner, turn.conversation_id or "")
        conversation = self._store.conversations[key]
        self._store.conversations[key] = replace(
            conversation, updated_at=now, title=conversation.title or title
        )
        self._store.move_head(*key, turn.reply_id)

    def _held(self, held: Held) -> Turn | None:
        """The open turn if its claim is still this one."""
        turn = self._store.turns.get(held.reply_id)
        if turn is None or turn.status.is_final or turn.held != held:
            return None
        return turn

    def _show(self, turn: Turn, outcome: Outcome | None) -> None:
        """Keeps the reply message in step with its turn."""
        message = self._store.messages.get((turn.owner, turn.reply_id))
        if message is not None:
            self._store.put_message(reply_after(message, turn, outcome))


@dataclass(frozen=True, slots=True)
class _Lookup:
    """What admission looks up."""

    store: MemoryStore
    new: NewTurn
    now: float

    def has_left(self) -> bool:
        return self.new.owner in self.store.departed

    def has_conversation(self) -> bool:
        return (self.new.owner, self.new.conversation_id) in self.store.conversations

    def was_deleted(self) -> bool:
        place = (self.new.owner, self.new.conversation_id or "")
        return self.new.key in self.store.deleted_keys.get(place, ())

    def goes_on(self) -> bool:
        owner, reply_id = self.new.owner, self.store.turn_keys[self.new.owner, self.new.key]
        place = (owner, self.store.turns[reply_id].conversation_id or "")
        beside = self.store.message_ids.get(place, ())
        return any(self.store.messages[owner, one].parent_id == reply_id for one in beside)

    def message(self, message_id: str | None) -> Message | None:
        return self.store.messages.get((self.new.owner, message_id or ""))

    def open_turns(self) -> Iterator[OpenTurn]:
        new, store = self.new, self.store
        for turn in store.open_turns(owner=new.owner, conversation_id=new.conversation_id):
            yield OpenTurn(turn.reply_id, turn.user_message_id, store.parent_of(turn))

    def spent(self) -> Spent:
        return self.store.spent(self.new.owner, self.now)
