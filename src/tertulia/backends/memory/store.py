"""Everything the in-memory back end keeps, in plain dictionaries. It decides nothing.

One event loop uses it; no method awaits, so every call of a port is one atomic step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace

from tertulia.backends.transitions import holding_of
from tertulia.core.deletions import Deletion, DeletionKind, ordered
from tertulia.core.identities import Identity
from tertulia.core.opening import InstructionsVersion
from tertulia.core.quota import Settlement, cost, ledger_moment, settle, settling_moment
from tertulia.core.ranks import rank_of, virtual_time, worst_cost
from tertulia.core.remembering import Summary, Task, TaskKind
from tertulia.core.rollout import Rollout
from tertulia.core.shares import Share
from tertulia.core.types import (
    ApiKey,
    Balance,
    Conversation,
    Lane,
    Message,
    Spent,
    Turn,
    Usage,
    User,
    Version,
)
from tertulia.ports import Clock


@dataclass(frozen=True, slots=True)
class Settled:
    """What a run cost, in numbers only: it stays when the conversation is deleted."""

    owner: str
    reply_id: str
    epoch: int
    charged: int
    settlement: Settlement
    model: str | None = None


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session by its user's id; whether the user is disabled is looked up each time."""

    user_id: str
    token_hash: str
    created_at: float
    expires_at: float


@dataclass(frozen=True, slots=True)
class StoredTask:
    """A task and when it may be claimed; None: never again."""

    task: Task
    due_at: float | None


@dataclass(slots=True)
class KeptDeletion:
    """An order to delete, and from when on it may be claimed."""

    deletion: Deletion
    due_at: float


@dataclass(slots=True)
class MemoryStore:
    """The tables. `open` holds the reply ids of turns that are not final, oldest first; `ranks` has
    the rank of each of them."""

    clock: Clock
    users: dict[str, User] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    departed: dict[str, str] = field(default_factory=dict)  # name marks by user id
    deletions: dict[tuple[str, str], KeptDeletion] = field(default_factory=dict)
    identities: dict[tuple[str, str], Identity] = field(default_factory=dict)
    sessions: dict[str, StoredSession] = field(default_factory=dict)
    links: dict[str, StoredSession] = field(default_factory=dict)
    api_keys: dict[str, ApiKey] = field(default_factory=dict)
    conversations: dict[tuple[str, str], Conversation] = field(default_factory=dict)
    conversation_keys: dict[tuple[str, str], str] = field(default_factory=dict)
    arrived: dict[tuple[str, str], float] = field(default_factory=dict)  # by an import
    prompts: dict[str, tuple[str, float]] = field(default_factory=dict)  # text, since when
    rollout: Rollout | None = None
    told: dict[str, list[InstructionsVersion]] = field(default_factory=dict)  # by owner
    messages: dict[tuple[str, str], Message] = field(default_factory=dict)
    message_ids: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    ratings: dict[tuple[str, str], str] = field(default_factory=dict)
    moves: int = 0  # of all heads; `shown` has the last one to each message
    shown: dict[tuple[str, str], int] = field(default_factory=dict)
    tasks: dict[tuple[str, str, TaskKind, str], StoredTask] = field(default_factory=dict)
    summaries: dict[tuple[str, str, str], Summary] = field(default_factory=dict)
    shares: dict[str, Share] = field(default_factory=dict)  # by the hash of their secret
    turns: dict[str, Turn] = field(default_factory=dict)
    turn_keys: dict[tuple[str, str], str] = field(default_factory=dict)
    # Of messages that are gone, by owner and conversation.
    deleted_keys: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    open: dict[str, None] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    tags: dict[tuple[str, Lane], int] = field(default_factory=dict)
    begun: Counter[Lane] = field(default_factory=Counter)  # claimed for the first time
    settlements: dict[tuple[str, str, int], Settled] = field(default_factory=dict)
    ledger_ms: dict[str, int] = field(default_factory=dict)  # the latest moment, by owner
    balances: dict[str, dict[str, Balance]] = field(default_factory=dict)

    def told_now(self, owner: str) -> InstructionsVersion | None:
        """The owner's instructions as they are now; None if there are none."""
        versions = self.told.get(owner)
        return versions[-1] if versions and versions[-1].text else None

    def put_turn(self, turn: Turn) -> None:
        """Stores the turn and keeps `open` true."""
        self.turns[turn.reply_id] = turn
        if turn.status.is_final:
            self.open.pop(turn.reply_id, None)
            self.ranks.pop(turn.reply_id, None)
        else:
            self.open[turn.reply_id] = None

    def line_up(self, turn: Turn) -> None:
        """Gives a turn that was admitted its place in its lane; one that is final needs none."""
        if turn.status.is_final:
            return
        waiting = [
            (other.owner, self.ranks[other.reply_id])
            for other in self.open_turns()
            if other.lane == turn.lane
            and other.lease_until is None
            and other.reply_id != turn.reply_id
        ]
        first = min((rank for _, rank in waiting), default=None)
        tags = () if waiting else (tag for (_, lane), tag in self.tags.items() if lane == turn.lane)
        key = (turn.owner, turn.lane)
        rank = rank_of(
            tag=self.tags.get(key, 0),
            floor=virtual_time(first, max(tags, default=None)),
            last=max((rank for owner, rank in waiting if owner == turn.owner), default=None),
        )
        self.ranks[turn.reply_id] = rank
        self.tags[key] = rank + worst_cost(turn)

    def give_back(self, turn: Turn, unused: int) -> None:
        """So much did a turn not cost that its owner's tag went up by."""
        self.tags[turn.owner, turn.lane] -= unused

    def put_message(self, message: Message) -> None:
        """Stores a message; a new one takes its place at the end of its conversation."""
        key = (message.owner, message.id)
        if key not in self.messages:
            self.message_ids[message.owner, message.conversation_id].append(message.id)
        self.messages[key] = message

    def touched_at(self, conversation: Conversation) -> float:
        """When somebody wrote in it last, or brought it along."""
        key = (conversation.owner, conversation.id)
        return max(conversation.updated_at, self.arrived.get(key, 0.0))

    def page_message(self, message: Message) -> Message:
        """A message as pages give it: without tokens, and which of its parent's children it is."""
        ids = self.message_ids[message.owner, message.conversation_id]
        beside = [
            one for one in ids if self.messages[message.owner, one].parent_id == message.parent_id
        ]
        n = beside.index(message.id)
        previous = beside[n - 1] if n > 0 else None
        following = beside[n + 1] if n + 1 < len(beside) else None
        version = Version(n + 1, len(beside), previous, following)
        return message._replace(ids=None, version=version)

    def forget_turn(self, turn: Turn) -> None:
        """Removes a turn, whatever its status."""
        del self.turns[turn.reply_id]
        del self.turn_keys[turn.owner, turn.key]
        self.open.pop(turn.reply_id, None)
        self.ranks.pop(turn.reply_id, None)

    def forget_message(self, message: Message) -> None:
        """Removes a message, and what is kept of it."""
        key = (message.owner, message.id)
        self.message_ids[message.owner, message.conversation_id].remove(message.id)
        del self.messages[key]
        self.ratings.pop(key, None)
        self.shown.pop(key, None)

    def move_head(self, owner: str, conversation_id: str, leaf: str | None) -> None:
        """Shows another leaf of a conversation, or none."""
        key = (owner, conversation_id)
        self.conversations[key] = replace(self.conversations[key], head_message_id=leaf)
        self.moves += 1
        if leaf is not None:
            self.shown[owner, leaf] = self.moves

    def drop_tasks(
        self, owner: str, conversation_id: str, *, upto: Collection[str] | None = None
    ) -> None:
        """What was to be made of a conversation, or up to some of its messages, and was made."""
        place = (owner, conversation_id)
        for task in [key for key in self.tasks if key[:2] == place]:
            if upto is None or task[3] in upto:
                del self.tasks[task]
        for summary in [key for key in self.summaries if key[:2] == place]:
            if upto is None or summary[2] in upto:
                del self.summaries[summary]

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

    def order_deletion(self, owner: str, target: str, kind: DeletionKind) -> None:
        """Leaves an order, unless its owner has left: the account's reaches everything."""
        now = self.clock.now()
        if kind is DeletionKind.ACCOUNT or owner not in self.departed:
            self.deletions[owner, target] = KeptDeletion(ordered(owner, target, kind, now), now)

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
        """What the owner has used and holds now."""
        running = sorted(
            self.open_turns(owner=owner), key=lambda turn: (turn.created_at, turn.reply_id)
        )
        balances = dict(self.balances.get(owner, {}))
        now_ms = ledger_moment(self.ledger_ms.get(owner), now)
        return Spent(now_ms, balances, tuple(holding_of(turn) for turn in running))

    def pass_door(self, owner: str, now: float) -> None:
        """Notes that the owner's ledger was looked at now: its time never goes back."""
        self.ledger_ms[owner] = ledger_moment(self.ledger_ms.get(owner), now)

    def settle(self, turn: Turn, usage: Usage, now: float) -> None:
        """Writes what an ended run cost; a second settlement of the same run is our mistake.

        `turn` still has the budgets that it was admitted under.
        """
        key = (turn.owner, turn.reply_id, turn.epoch)
        assert key not in self.settlements, key
        at_ms = settling_moment(self.ledger_ms.get(turn.owner), now)
        settlement = Settlement(turn.budgets, usage, at_ms)
        balances = self.balances.setdefault(turn.owner, {})
        balances |= settle(balances, settlement)
        self.ledger_ms[turn.owner] = at_ms
        self.settlements[key] = Settled(
            owner=turn.owner,
            reply_id=turn.reply_id,
            epoch=turn.epoch,
            charged=cost("units", usage),
            settlement=settlement,
            model=turn.model,
        )
