"""Everything the in-memory back end keeps, in plain dictionaries. It decides nothing.

One event loop uses it; no method awaits, so every call of a port is one atomic step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tertulia.core.quota import day_of
from tertulia.core.types import ApiKey, Conversation, Message, Spent, Turn, User
from tertulia.ports import Clock


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a turn cost, in numbers only: it stays when the conversation is deleted."""

    owner: str
    reply_id: str
    epoch: int
    day: int
    charged: int
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    model: str | None = None


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session by its user's id; whether the user is disabled is looked up each time."""

    user_id: str
    token_hash: str
    created_at: float
    expires_at: float


@dataclass(slots=True)
class MemoryStore:
    """The tables. `open` holds the reply ids of turns that are not final, oldest first."""

    clock: Clock
    users: dict[str, User] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    sessions: dict[str, StoredSession] = field(default_factory=dict)
    links: dict[str, StoredSession] = field(default_factory=dict)
    api_keys: dict[str, ApiKey] = field(default_factory=dict)
    conversations: dict[tuple[str, str], Conversation] = field(default_factory=dict)
    conversation_keys: dict[tuple[str, str], str] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)
    messages: dict[tuple[str, str], Message] = field(default_factory=dict)
    message_ids: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    ratings: dict[tuple[str, str], str] = field(default_factory=dict)
    turns: dict[str, Turn] = field(default_factory=dict)
    turn_keys: dict[tuple[str, str], str] = field(default_factory=dict)
    open: dict[str, None] = field(default_factory=dict)
    settlements: dict[tuple[str, str, int], Settlement] = field(default_factory=dict)
    used: dict[tuple[str, int], int] = field(default_factory=dict)  # settled, by owner and day

    def put_turn(self, turn: Turn) -> None:
        """Stores the turn and keeps `open` true."""
        self.turns[turn.reply_id] = turn
        if turn.status.is_final:
            self.open.pop(turn.reply_id, None)
        else:
            self.open[turn.reply_id] = None

    def put_message(self, message: Message) -> None:
        """Stores a message; a new one takes its place at the end of its conversation."""
        key = (message.owner, message.id)
        if key not in self.messages:
            self.message_ids[message.owner, message.conversation_id].append(message.id)
        self.messages[key] = message

    def open_turns(
        self, *, owner: str | None = None, conversation_id: str | None = None
    ) -> Iterator[Turn]:
        """Open turns, of one owner and one conversation where named."""
        for reply_id in self.open:
            turn = self.turns[reply_id]
            if owner is not None and turn.owner != owner:
                continue
            if conversation_id is not None and turn.conversation_id != conversation_id:
                continue
            yield turn

    def enabled(self, user_id: str) -> User | None:
        """The user, unless disabled."""
        user = self.users.get(user_id)
        return user if user is not None and not user.disabled else None

    def parent_of(self, turn: Turn) -> str | None:
        """The parent of the turn's user message."""
        if turn.user_message_id is None:
            return None
        message = self.messages.get((turn.owner, turn.user_message_id))
        return message.parent_id if message is not None else None

    def spent(self, owner: str, now: float) -> Spent:
        """What the owner has used today and holds now."""
        day, day_ends_at = day_of(now)
        used = self.used.get((owner, day), 0)
        running = sorted(
            self.open_turns(owner=owner), key=lambda turn: (turn.created_at, turn.reply_id)
        )
        reserved = sum(turn.reserved for turn in running)
        return Spent(used, reserved, tuple(turn.reply_id for turn in running), day_ends_at)

    def settle(self, turn: Turn, charged: int, now: float) -> None:
        """Writes what an ended run cost; a second settlement of the same run is our mistake."""
        key = (turn.owner, turn.reply_id, turn.epoch)
        assert key not in self.settlements, key
        day, _ = day_of(now)
        self.used[turn.owner, day] = self.used.get((turn.owner, day), 0) + charged
        self.settlements[key] = Settlement(
            owner=turn.owner,
            reply_id=turn.reply_id,
            epoch=turn.epoch,
            day=day,
            charged=charged,
            input_tokens=turn.usage.input,
            cached_tokens=turn.usage.cached,
            output_tokens=turn.usage.output,
            model=turn.model,
        )
