"""Which conversations in memory may be used to judge models and changes."""

from __future__ import annotations

from collections.abc import Sequence

from tertulia.backends.memory.store import MemoryStore
from tertulia.core.types import Conversation


class MemoryEvaluation:
    """The `Evaluation` port."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def usable(
        self, *, after: tuple[str, str] = ("", ""), limit: int
    ) -> Sequence[Conversation]:
        """Some of them, by owner and id."""
        found = [
            conversation
            for key, conversation in sorted(self._store.conversations.items())
            if key > after and self._agreed(key[0])
        ]
        return found[:limit]

    async def is_usable(self, owner: str, conversation_id: str) -> bool:
        """Whether this one may be used now."""
        return (owner, conversation_id) in self._store.conversations and self._agreed(owner)

    def _agreed(self, owner: str) -> bool:
        user = self._store.users.get(owner)
        return user is not None and user.evaluation and not user.disabled
