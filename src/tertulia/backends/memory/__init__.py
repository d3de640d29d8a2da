"""The in-memory back end: complete, plain and the reference for every other. It keeps nothing."""

from __future__ import annotations

from tertulia.backends.memory.accounts import MemoryAccounts
from tertulia.backends.memory.api_keys import MemoryApiKeys
from tertulia.backends.memory.batches import KeptBatches, MemoryBatches, MemoryBatchWork
from tertulia.backends.memory.branches import MemoryBranches
from tertulia.backends.memory.conversations import MemoryConversations
from tertulia.backends.memory.deletions import MemoryDeletions, MemoryErasure
from tertulia.backends.memory.evaluation import MemoryEvaluation
from tertulia.backends.memory.files import MemoryFiles
from tertulia.backends.memory.identities import MemoryIdentities
from tertulia.backends.memory.instructions import MemoryInstructions
from tertulia.backends.memory.ledger import MemoryLedger
from tertulia.backends.memory.log import MemoryLog
from tertulia.backends.memory.loose import MemoryLooseTurns
from tertulia.backends.memory.messages import MemoryMessages
from tertulia.backends.memory.moving import (
    KeptImports,
    MemoryImports,
    MemoryImportWork,
    MemoryTranscripts,
)
from tertulia.backends.memory.prompts import MemoryPrompts
from tertulia.backends.memory.queue import MemoryLine, MemoryPresence, MemoryQueue
from tertulia.backends.memory.sessions import MemorySessions
from tertulia.backends.memory.shares import MemoryShares
from tertulia.backends.memory.store import MemoryStore
from tertulia.backends.memory.tasks import MemorySummaries, MemoryTasks
from tertulia.backends.memory.turns import MemoryTurns
from tertulia.ports import Clock

__all__ = ["MemoryBackend", "MemoryLog", "MemoryStore"]


class MemoryBackend:
    """All ports over one store, for one event loop. `log` is a part that can be lost alone."""

    def __init__(self, clock: Clock) -> None:
        self.store = MemoryStore(clock)
        self.log = MemoryLog(self.store)
        self.turns = MemoryTurns(self.store, self.log)
        self.loose = MemoryLooseTurns(self.store, self.log)
        self.queue = MemoryQueue(self.store)
        self.line = MemoryLine(self.store, self.queue)
        self.presence = MemoryPresence(self.store)
        self.conversations = MemoryConversations(self.store, self.log)
        self.messages = MemoryMessages(self.store)
        self.branches = MemoryBranches(self.store, self.log, self.conversations)
        self.tasks = MemoryTasks(self.store)
        self.summaries = MemorySummaries(self.store)
        self.shares = MemoryShares(self.store, self.messages)
        self.accounts = MemoryAccounts(self.store)
        self.identities = MemoryIdentities(self.store, self.accounts)
        self.ledger = MemoryLedger(self.store)
        self.sessions = MemorySessions(self.store)
        self.api_keys = MemoryApiKeys(self.store)
        self.prompts = MemoryPrompts(self.store)
        self.instructions = MemoryInstructions(self.store)
        self.evaluation = MemoryEvaluation(self.store)
        self.files = MemoryFiles(clock)
        batches = KeptBatches(self.store, self.files)
        self.batches = MemoryBatches(batches)
        self.batch_work = MemoryBatchWork(batches)
        self.deletions = MemoryDeletions(self.store)
        self.erasure = MemoryErasure(self.store, batches)
        self.transcripts = MemoryTranscripts(self.store)
        imports = KeptImports(self.store)
        self.imports = MemoryImports(imports)
        self.import_work = MemoryImportWork(imports)

    async def close(self) -> None:
        """Nothing to close; here so that every back end ends alike."""
