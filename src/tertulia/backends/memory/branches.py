"""Branches in memory: which leaf is shown, and the deletion of a part of a tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tertulia.backends.memory.conversations import MemoryConversations
from tertulia.backends.memory.log import MemoryLog
from tertulia.backends.memory.store import MemoryStore
from tertulia.backends.transitions import ANSWERED, loses_title
from tertulia.core.deletions import DeletionKind
from tertulia.core.ranks import worst_cost
from tertulia.core.types import Conversation, Head, Message, Page, Turn


class MemoryBranches:
    """The `Branches` port."""

    def __init__(
        self, store: MemoryStore, log: MemoryLog, conversations: MemoryConversations
    ) -> None:
        self._store = store
        self._log = log
        self._conversations = conversations

    async def page(
        self,
        owner: str,
        conversation_id: str,
        *,
        through: str | Head,
        before: str | None,
        limit: int,
    ) -> Page[Message] | None:
        """The newest `limit` of a branch before `before`, oldest first."""
        conversation = self._store.conversations.get((owner, conversation_id))
        if conversation is None:
            return None
        for message_id in (through, before):
            if isinstance(message_id, str) and not self._is_in(owner, conversation_id, message_id):
                return None
        if before is not None:
            leaf = self._store.messages[owner, before].parent_id
        elif isinstance(through, Head):
            leaf = conversation.head_message_id
        else:
            leaf = self._leaf(owner, conversation_id, through)
        path: list[Message] = []
        while leaf is not None and len(path) <= limit:
            path.append(self._store.messages[owner, leaf])
            leaf = path[-1].parent_id
        items = tuple(self._store.page_message(message) for message in reversed(path[:limit]))
        return Page(items, items[0].id if len(path) > limit and items else None)

    async def switch(
        self, owner: str, conversation_id: str, message_id: str
    ) -> Conversation | None:
        """Shows the branch of a message, at the leaf where it was last."""
        if not self._is_in(owner, conversation_id, message_id):
            return None
        leaf = self._leaf(owner, conversation_id, message_id)
        self._store.move_head(owner, conversation_id, leaf)
        return await self._conversations.get(owner, conversation_id)

    async def running(self, owner: str, message_id: str) -> tuple[str, ...] | None:
        """The open replies at or below a message."""
        top = self._store.messages.get((owner, message_id))
        if top is None:
            return None
        return tuple(turn.reply_id for turn in self._open_turns(top))

    async def delete(self, owner: str, message_id: str) -> tuple[str, ...] | None:
        """A message with all below it, but for the numbers; the reply ids that were open."""
        store = self._store
        top = store.messages.get((owner, message_id))
        if top is None:
            return None
        now, running, gone = store.clock.now(), self._open_turns(top), list(self._below(top))
        conversation = store.conversations[owner, top.conversation_id]
        loses = loses_title(
            conversation.title,
            conversation.titled_by,
            asked=(one.content for one in gone if one.role == "user"),
            answered_above=self._is_answered_above(top),
        )
        for turn in running:
            if turn.epoch > 0:  # it may have used the accelerator: its reservation is its price
                store.settle(turn, turn.worst_case, now)
            else:
                store.give_back(turn, worst_cost(turn))
        turns = [store.turns[one.id] for one in gone if one.id in store.turns]
        await self._log.bury([turn.reply_id for turn in turns])
        dead = store.deleted_keys.setdefault((owner, top.conversation_id), set())
        for turn in turns:
            store.forget_turn(turn)
            dead.add(turn.key)
        for message in gone:
            store.forget_message(message)
        ids = {message.id for message in gone}
        store.drop_tasks(owner, top.conversation_id, upto=ids)
        for token_hash, share in list(store.shares.items()):
            if share.owner == owner and share.snapshot.leaf_id in ids:
                del store.shares[token_hash]
        self._mend(top, ids, loses_title=loses)
        store.order_deletion(owner, top.conversation_id, DeletionKind.MESSAGES)
        return tuple(turn.reply_id for turn in running)

    def _is_answered_above(self, top: Message) -> bool:
        above = top.parent_id
        while above is not None:
            one = self._store.messages[top.owner, above]
            if one.role == "assistant" and one.status in ANSWERED and one.tokens:
                return True
            above = one.parent_id
        return False

    def _mend(self, top: Message, gone: set[str], *, loses_title: bool) -> None:
        """What a conversation says of itself, once some of its messages are gone."""
        key = (top.owner, top.conversation_id)
        conversation = self._store.conversations[key]
        if loses_title:
            self._store.conversations[key] = replace(conversation, title="", titled_by="words")
        if conversation.head_message_id in gone:
            self._store.move_head(*key, self._leaf(*key, top.parent_id))

    def _leaf(self, owner: str, conversation_id: str, top: str | None) -> str | None:
        """Where the branch of a message was last at, or the whole tree without one."""
        messages = list(self._all(owner, conversation_id))
        parents = {message.parent_id for message in messages}
        if top is not None:
            messages = list(self._below(self._store.messages[owner, top]))
        leaves = [message for message in messages if message.id not in parents]
        if not leaves:
            return None
        shown = self._store.shown
        return max(leaves, key=lambda leaf: (shown.get((owner, leaf.id), 0), leaf.seq)).id

    def _open_turns(self, top: Message) -> list[Turn]:
        ids = {message.id for message in self._below(top)}
        found = [turn for turn in self._store.open_turns(owner=top.owner) if turn.reply_id in ids]
        return sorted(found, key=lambda turn: (turn.created_at, turn.reply_id))

    def _below(self, top: Message) -> Iterator[Message]:
        """A message and all below it: a child is always newer than its parent."""
        ids = {top.id}
        for message in self._all(top.owner, top.conversation_id):
            if message.id in ids or message.parent_id in ids:
                ids.add(message.id)
                yield message

    def _all(self, owner: str, conversation_id: str) -> Iterator[Message]:
        for message_id in self._store.message_ids[owner, conversation_id]:
            yield self._store.messages[owner, message_id]

    def _is_in(self, owner: str, conversation_id: str, message_id: str) -> bool:
        message = self._store.messages.get((owner, message_id))
        return message is not None and message.conversation_id == conversation_id
