"""Messages in memory: pages, branches and the texts of a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from tertulia.backends.memory.store import MemoryStore
from tertulia.core.types import BranchMessage, Message, Page, PromptMessage


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
            replace(self._store.messages[owner, message_id], ids=None)
            for message_id in ids[first:end]
        )
        return Page(items, items[0].id if first > 0 and items else None)

    async def find(self, owner: str, message_id: str) -> Message | None:
        """One message with its tokens."""
        return self._store.messages.get((owner, message_id))

    async def branch(
        self, owner: str, conversation_id: str, leaf: str | None
    ) -> Sequence[BranchMessage]:
        """From the root to `leaf`."""
        path: list[BranchMessage] = []
        while leaf is not None:
            message = self._store.messages.get((owner, leaf))
            if message is None or message.conversation_id != conversation_id:
                break
            path.append(
                BranchMessage(
                    message.id, message.role, message.status, message.tokens, message.tokenizer
                )
            )
            leaf = message.parent_id
        return tuple(reversed(path))

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
        message = replace(message, feedback=rating)
        self._store.put_message(message)
        self._store.ratings[owner, message_id] = why
        return message
