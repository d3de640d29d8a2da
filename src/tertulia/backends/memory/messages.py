"""Messages in memory: pages, branches and the texts of a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tertulia.backends.memory.store import MemoryStore
from tertulia.core.types import Branch, BranchMessage, Head, Message, Page, PromptMessage


class MemoryMessages:
    """The `Messages` port."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def page(
        self, owner: str, conversation_id: str, *, before: str | None, limit: int
    ) -> Page[Message] | None:
        """The newest `limit` before `before`, oldest first."""
        ids = self._store.message_ids.get((owner, conversation_id))
        if ids is None or (before is not None and before not in ids):
            return None
        end = len(ids) if before is None else ids.index(before)
        first = max(0, end - limit)
        items = tuple(
            self._store.page_message(self._store.messages[owner, message_id])
            for message_id in ids[first:end]
        )
        return Page(items, items[0].id if first > 0 and items else None)

    async def find(self, owner: str, message_id: str) -> Message | None:
        """One message with its tokens."""
        return self._store.messages.get((owner, message_id))

    async def branch(
        self, owner: str, conversation_id: str, leaf: str | Head | None
    ) -> Branch | None:
        """From the root to `leaf`, and what the conversation keeps to."""
        conversation = self._store.conversations.get((owner, conversation_id))
        if conversation is None:
            return None
        if isinstance(leaf, Head):
            leaf = conversation.head_message_id
        path: list[Message] = []
        at = leaf
        while at is not None:
            message = self._store.messages.get((owner, at))
            if message is None or message.conversation_id != conversation_id:
                break
            path.append(message)
            at = message.parent_id
        return Branch(
            conversation.prompt_version,
            conversation.model,
            leaf,
            tuple(
                BranchMessage(one.id, one.role, one.status, one.tokens, one.tokenizer)
                for one in reversed(path)
            ),
            path[0].content if path and path[0].role == "user" else None,
            conversation.instructions,
            conversation.titled_by,
        )

    async def texts(self, owner: str, message_ids: Sequence[str]) -> Sequence[PromptMessage]:
        """Texts in the given order; what is not there is left out."""
        found = [self._store.messages.get((owner, message_id)) for message_id in message_ids]
        return tuple(
            PromptMessage(
                message.role,
                message.content,
                message.ids,
                message.tokenizer if message.ids is not None else None,
            )
            for message in found
            if message is not None
        )

    async def rate(
        self, owner: str, message_id: str, rating: Literal["up", "down"] | None, why: str
    ) -> Message | None:
        """A rating of a reply; nothing else moves (S-23)."""
        message = self._store.messages.get((owner, message_id))
        if message is None or message.role != "assistant":
            return None
        message = message._replace(feedback=rating)
        self._store.put_message(message)
        self._store.ratings[owner, message_id] = why
        return message
