"""The in-memory back end: complete, plain and the reference for every other. It keeps nothing."""

from __future__ import annotations

from tertulia.backends.memory.accounts import MemoryAccounts
from tertulia.backends.memory.api_keys import MemoryApiKeys
from tertulia.backends.memory.conversations import MemoryConversations
from tertulia.backends.memory.log import MemoryLog
from tertulia.backends.memory.messages import MemoryMessages
from tertulia.backends.memory.queue import MemoryPresence, MemoryQueue
from tertulia.backends.memory.sessions import MemorySessions
from tertulia.backends.memory.store import MemoryStore
from tertulia.backends.memory.turns import MemoryTurns
from tertulia.ports import Clock

__all__ = ["MemoryBackend", "MemoryLog", "MemoryStore"]


class MemoryBackend:
    """All ports over one store, for one event loop. `log` is a part that can be lost alone."""

    def __init__(self, clock: Clock) -> None:
        self.store = MemoryStore(clock)
        self.log = MemoryLog(self.store)
        self.turns = MemoryTurns(self.store, self.log)
        self.queue = MemoryQueue(self.store)
        self.presence = MemoryPresence(self.store)
        self.conversations = MemoryConversations(self.store, self.log)
        self.messages = MemoryMessages(self.store)
        self.accounts = MemoryAccounts(self.store)
        self.sessions = MemorySessions(self.store)
        self.api_keys = MemoryApiKeys(self.store)

    async def close(self) -> None:
        """Nothing to close; here so that every back end ends alike."""
