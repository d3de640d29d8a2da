"""Conversations in memory, and their deletion down to the last log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tertulia.backends.changes import CONVERSATION_FIELDS, demand_changeable, titled_by
from tertulia.backends.cursors import read_cursor, write_cursor
from tertulia.backends.memory.log import MemoryLog
from tertulia.backends.memory.store import MemoryStore
from tertulia.core.deletions import kind_of
from tertulia.core.opening import NO_INSTRUCTIONS
from tertulia.core.ranks import worst_cost
from tertulia.core.search import folded, looked_through, searched, snippet
from tertulia.core.types import Conversation, Page


class MemoryConversations:
    """The `Conversations` port."""

    def __init__(self, store: MemoryStore, log: MemoryLog) -> None:
        self._store = store
        self._log = log

    async def create(
        self, owner: str, conversation_id: str, *, key: str | None, prompt_version: str
    ) -> Conversation:
        """A new conversation, or the one that was made with this key (S-19)."""
        store = self._store
        if key is not None:
            conversation_id = store.conversation_keys.get((owner, key), conversation_id)
        known = await self.get(owner, conversation_id)
        if known is not None:
            return known
        now = store.clock.now()
        told = store.told_now(owner)
        made = Conversation(
            owner,
            conversation_id,
            "",
            prompt_version,
            now,
            now,
            instructions=told.version if told is not None else NO_INSTRUCTIONS,
        )
        store.conversations[owner, conversation_id] = made
        store.message_ids[owner, conversation_id] = []
        if key is not None:
            store.conversation_keys[owner, key] = conversation_id
        return made

    async def get(self, owner: str, conversation_id: str) -> Conversation | None:
        """The owner's conversation with its reply in progress."""
        found = self._store.conversations.get((owner, conversation_id))
        return self._with_active(found) if found is not None else None

    async def list(
        self, owner: str, *, cursor: str | None, limit: int, query: str, archived: bool
    ) -> Page[Conversation]:
        """One page: pinned first, then newest."""
        listed = sorted(
            (
                conversation
                for (its_owner, _), conversation in self._store.conversations.items()
                if its_owner == owner and conversation.archived == archived
            ),
            key=_place,
            reverse=True,
        )
        if cursor is not None:
            after = read_cursor(cursor)
            listed = [conversation for conversation in listed if _place(conversation) < after]
        word = searched(query)
        looked = listed[: looked_through(word)] if word else listed
        found = [one for one in map(partial(self._found, word), looked) if one is not None]
        items = tuple(self._with_active(conversation) for conversation in found[:limit])
        if len(found) > limit:
            return Page(items, write_cursor(*_place(items[-1])) if items else None)
        more = len(looked) < len(listed)
        return Page(items, write_cursor(*_place(looked[-1])) if more else None)

    async def change(
        self, owner: str, conversation_id: str, changes: Mapping[str, Any]
    ) -> Conversation | None:
        """Touches only the named fields."""
        demand_changeable(changes, CONVERSATION_FIELDS)
        key = (owner, conversation_id)
        if key not in self._store.conversations:
            return None
        known = self._store.conversations[key]
        changed = replace(known, **changes, titled_by=titled_by(changes) or known.titled_by)
        self._store.conversations[key] = changed
        return self._with_active(changed)

    async def delete(
        self, owner: str, conversation_id: str | None, *, idle_s: float | None = None
    ) -> tuple[str, ...] | None:
        """Everything of the conversation but the numbers; the reply ids that were open."""
        store = self._store
        turns = [
            turn
            for turn in store.turns.values()
            if turn.owner == owner and turn.conversation_id == conversation_id
        ]
        if conversation_id is not None:
            found = store.conversations.get((owner, conversation_id))
            if found is None:
                return None
            if idle_s is not None and store.touched_at(found) > store.clock.now() - idle_s:
                return None
        running = sorted(
            (turn for turn in turns if not turn.status.is_final),
            key=lambda turn: (turn.created_at, turn.reply_id),
        )
        now = store.clock.now()
        for turn in running:
            if turn.epoch > 0:  # it may have used the accelerator: its reservation is its price
                store.settle(turn, turn.worst_case, now)
            else:
                store.give_back(turn, worst_cost(turn))
        await self._log.bury([turn.reply_id for turn in turns])
        for turn in turns:
            del store.turns[turn.reply_id]
            del store.turn_keys[owner, turn.key]
            store.open.pop(turn.reply_id, None)
            store.ranks.pop(turn.reply_id, None)
        if conversation_id is not None:
            self._delete_tree(owner, conversation_id)
        store.order_deletion(owner, conversation_id or "", kind_of(conversation_id, idle_s))
        return tuple(turn.reply_id for turn in running)

    async def bury_deleted(self) -> int:
        """Nothing: `delete` leaves no log behind."""
        return 0

    def _delete_tree(self, owner: str, conversation_id: str) -> None:
        store = self._store
        for message_id in store.message_ids.pop((owner, conversation_id)):
            del store.messages[owner, message_id]
            store.ratings.pop((owner, message_id), None)
            store.shown.pop((owner, message_id), None)
        store.drop_tasks(owner, conversation_id)
        for token_hash, share in list(store.shares.items()):
            if (share.owner, share.conversation_id) == (owner, conversation_id):
                del store.shares[token_hash]
        store.deleted_keys.pop((owner, conversation_id), None)
        del store.conversations[owner, conversation_id]
        store.arrived.pop((owner, conversation_id), None)
        for key, made in list(store.conversation_keys.items()):
            if key[0] == owner and made == conversation_id:
                del store.conversation_keys[key]

    async def prompt_text(self, version: str, *, store: str | None = None) -> str | None:
        """The text of a version, stored once and never changed."""
        if store is not None:
            self._store.prompts.setdefault(version, (store, self._store.clock.now()))
        text, _ = self._store.prompts.get(version, (None, 0.0))
        return text

    def _with_active(self, conversation: Conversation) -> Conversation:
        running = [
            (turn.created_at, turn.reply_id)
            for turn in self._store.open_turns(
                owner=conversation.owner, conversation_id=conversation.id
            )
        ]
        return replace(conversation, active_message_id=max(running)[1] if running else None)

    def _found(self, word: str, conversation: Conversation) -> Conversation | None:
        """A conversation that holds the word, with the newest place where a message does."""
        if word in folded(conversation.title):
            return conversation
        for message_id in reversed(self._store.message_ids[conversation.owner, conversation.id]):
            content = self._store.messages[conversation.owner, message_id].content
            if word in folded(content):
                return replace(conversation, snippet=snippet(content, word))
        return None


def _place(conversation: Conversation) -> tuple[bool, float, str]:
    return conversation.pinned, conversation.updated_at, conversation.id
