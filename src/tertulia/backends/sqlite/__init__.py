"""The embedded back end: all ports over one SQLite file, for one process and its event loop.

What it has answered survives a crash of the process and of the machine.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tertulia.backends.sqlite.accounts import SqliteAccounts
from tertulia.backends.sqlite.api_keys import SqliteApiKeys
from tertulia.backends.sqlite.batches import SqliteBatches, SqliteBatchWork
from tertulia.backends.sqlite.branches import SqliteBranches
from tertulia.backends.sqlite.conversations import SqliteConversations
from tertulia.backends.sqlite.deletions import SqliteDeletions, SqliteErasure
from tertulia.backends.sqlite.evaluation import SqliteEvaluation
from tertulia.backends.sqlite.file import open_writer, prepare, store_error
from tertulia.backends.sqlite.files import SqliteFiles
from tertulia.backends.sqlite.identities import SqliteIdentities
from tertulia.backends.sqlite.instructions import SqliteInstructions
from tertulia.backends.sqlite.known import KnownKeys
from tertulia.backends.sqlite.ledger import SqliteLedger
from tertulia.backends.sqlite.log import SqliteLog
from tertulia.backends.sqlite.loose import SqliteLooseTurns
from tertulia.backends.sqlite.messages import SqliteMessages
from tertulia.backends.sqlite.moving import (
    SqliteImports,
    SqliteImportWork,
    SqliteTranscripts,
)
from tertulia.backends.sqlite.prompts import SqlitePrompts
from tertulia.backends.sqlite.queue import SqliteLine, SqlitePresence, SqliteQueue
from tertulia.backends.sqlite.readers import Readers
from tertulia.backends.sqlite.sessions import SqliteSessions
from tertulia.backends.sqlite.shares import SqliteShares
from tertulia.backends.sqlite.tasks import SqliteSummaries, SqliteTasks
from tertulia.backends.sqlite.turns import SqliteTurns
from tertulia.backends.sqlite.writer import Writer
from tertulia.ports import Clock

__all__ = ["SqliteBackend"]


class SqliteBackend:
    """Opens the file at once (and migrates it); `close` lets it go.

    StoreUnavailable says why it can't be opened: another process has it, or its disk can't
    promise durability. NewerSchema: a newer version wrote it.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._lock = prepare(path)
        try:
            self._writer = Writer(open_writer(path))
        except sqlite3.Error as error:
            self._lock.release()
            raise store_error(error) from error
        except BaseException:
            self._lock.release()
            raise
        self._readers = Readers(path)
        writer, readers, known = self._writer, self._readers, KnownKeys()
        self.log = SqliteLog(writer, clock)
        self.turns = SqliteTurns(writer, readers, self.log, clock)
        self.loose = SqliteLooseTurns(writer, self.log, clock)
        self.queue = SqliteQueue(writer, readers, clock)
        self.line = SqliteLine(readers, clock)
        self.presence = SqlitePresence(writer, clock)
        self.conversations = SqliteConversations(writer, readers, self.log, clock)
        self.messages = SqliteMessages(writer, readers)
        self.branches = SqliteBranches(writer, readers, self.log, clock)
        self.tasks = SqliteTasks(writer, readers, clock)
        self.summaries = SqliteSummaries(writer, readers)
        self.shares = SqliteShares(writer, readers, clock)
        self.accounts = SqliteAccounts(writer, readers, known, clock)
        self.identities = SqliteIdentities(writer, readers)
        self.ledger = SqliteLedger(writer, readers)
        self.sessions = SqliteSessions(writer, readers, clock)
        self.api_keys = SqliteApiKeys(writer, readers, known, clock)
        self.prompts = SqlitePrompts(writer, readers)
        self.instructions = SqliteInstructions(writer, readers, clock)
        self.evaluation = SqliteEvaluation(readers)
        self.files = SqliteFiles(writer, readers, clock)
        self.batches = SqliteBatches(writer, readers, clock)
        self.batch_work = SqliteBatchWork(writer, readers, clock)
        self.deletions = SqliteDeletions(writer, readers, clock)
        self.erasure = SqliteErasure(writer, readers, known, clock)
        self.transcripts = SqliteTranscripts(readers)
        self.imports = SqliteImports(writer, readers, clock)
        self.import_work = SqliteImportWork(writer, clock)

    async def close(self) -> None:
        """Finishes what waits and lets the file go."""
        await self._readers.close()
        await self._writer.close()
        self._lock.release()
