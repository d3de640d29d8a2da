"""Conversations in memory, and their deletion down to the last log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tertulia.backends.changes import CONVERSATION_FIELDS, demand_changeable
from tertulia.backends.cursors import read_cursor, searched, write_cursor
from tertulia.backends.memory.log import MemoryLog
from tertulia.backends.memory.store import MemoryStore
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
        made = Conversation(owner, conversation_id, "", prompt_version, now, now)
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
        word = searched(query)
        found = [
            conversation
            for (its_owner, _), conversation in self._store.conversations.items()
            if its_owner == owner
            and conversation.archived == archived
            and (not word or self._matches(conversation, word))
        ]
        found.sort(key=_place, reverse=True)
        if cursor is not None:
            after = read_cursor(cursor)
            found = [conversation for conversation in found if _place(conversation) < after]
        items = tuple(self._with_active(conversation) for conversation in found[:limit])
        more = len(found) > limit
        return Page(items, write_cursor(*_place(items[-1])) if more and items else None)

    async def change(
        self, owner: str, conversation_id: str, changes: Mapping[str, Any]
    ) -> Conversation | None:
        """Touches only the named fields."""
        demand_changeable(changes, CONVERSATION_FIELDS)
        key = (owner, conversation_id)
        if key not in self._store.conversations:
            return None
        changed = replace(self._store.conversations[key], **changes)
        self._store.conversations[key] = changed
        return self._with_active(changed)

    async def delete(self, owner: str, conversation_id: str | None) -> tuple[str, ...] | None:
        """Everything of the conversation but the numbers; the reply ids that were open."""
        store = self._store
        if conversation_id is not None and (owner, conversation_id) not in store.conversations:
            return None
        turns = [
            turn
            for turn in store.turns.values()
            if turn.owner == owner and turn.conversation_id == conversation_id
        ]
        running = [turn for turn in turns if not turn.status.is_final]
        now = store.clock.now()
        for turn in running:
            if turn.epoch > 0:  # it may have used the accelerator: its reservation is its price
                store.settle(turn, turn.reserved, now)
        self._log.bury([turn.reply_id for turn in turns])
        for turn in turns:
            del store.turns[turn.reply_id]
            del store.turn_keys[owner, turn.key]
            store.open.pop(turn.reply_id, None)
        if conversation_id is not None:
            self._delete_tree(owner, conversation_id)
        return tuple(turn.reply_id for turn in sorted(running, key=lambda t: t.created_at))

    def _delete_tree(self, owner: str, conversation_id: str) -> None:
        store = self._store
        for message_id in store.message_ids.pop((owner, conversation_id)):
            del store.messages[owner, message_id]
            store.ratings.pop((owner, message_id), None)
        del store.conversations[owner, conversation_id]
        for key, made in list(store.conversation_keys.items()):
            if key[0] == owner and made == conversation_id:
                del store.conversation_keys[key]

    async def prompt_text(self, version: str, *, store: str | None = None) -> str | None:
        """The text of a version, stored once and never changed."""
        if store is not None:
            self._store.prompts.setdefault(version, store)
        return self._store.prompts.get(version)

    def _with_active(self, conversation: Conversation) -> Conversation:
        running = [
            (turn.created_at, turn.reply_id)
            for turn in self._store.open_turns(
                owner=conversation.owner, conversation_id=conversation.id
            )
        ]
        return replace(conversation, active_message_id=max(running)[1] if running else None)

    def _matches(self, conversation: Conversation, word: str) -> bool:
        if word in conversation.title.casefold():
            return True
        return any(
            word in self._store.messages[conversation.owner, message_id].content.casefold()
            for message_id in self._store.message_ids[conversation.owner, conversation.id]
        )


def _place(conversation: Conversation) -> tuple[bool, float, str]:
    return conversation.pinned, conversation.updated_at, conversation.id
