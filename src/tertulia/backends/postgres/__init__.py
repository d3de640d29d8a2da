"""The truth of a fleet: every port but the log over one Postgres, for any number of processes.

What it has answered survives a crash of the server and of any of them.
"""

from __future__ import annotations

from typing import Self

from tertulia.backends.postgres.accounts import PostgresAccounts
from tertulia.backends.postgres.api_keys import PostgresApiKeys
from tertulia.backends.postgres.batches import PostgresBatches, PostgresBatchWork
from tertulia.backends.postgres.branches import PostgresBranches
from tertulia.backends.postgres.conversations import PostgresConversations
from tertulia.backends.postgres.database import CONNECTIONS, Database
from tertulia.backends.postgres.deletions import PostgresDeletions, PostgresErasure
from tertulia.backends.postgres.evaluation import PostgresEvaluation
from tertulia.backends.postgres.files import PostgresFiles
from tertulia.backends.postgres.identities import PostgresIdentities
from tertulia.backends.postgres.instructions import PostgresInstructions
from tertulia.backends.postgres.ledger import PostgresLedger
from tertulia.backends.postgres.loose import PostgresLooseTurns
from tertulia.backends.postgres.messages import PostgresMessages
from tertulia.backends.postgres.moving import (
    PostgresImports,
    PostgresImportWork,
    PostgresTranscripts,
)
from tertulia.backends.postgres.prompts import PostgresPrompts
from tertulia.backends.postgres.queue import PostgresLine, PostgresPresence, PostgresQueue
from tertulia.backends.postgres.sessions import PostgresSessions
from tertulia.backends.postgres.shares import PostgresShares
from tertulia.backends.postgres.tasks import PostgresSummaries, PostgresTasks
from tertulia.backends.postgres.turns import PostgresTurns
from tertulia.ports import Clock, Log

__all__ = ["PostgresBackend"]


class PostgresBackend:
    """Made by `open`. Logs are in another system: `log` is told what to drop and what to bury."""

    def __init__(self, database: Database, log: Log) -> None:
        self._database = database
        self.turns = PostgresTurns(database, log)
        self.loose = PostgresLooseTurns(database, log)
        self.queue = PostgresQueue(database)
        self.line = PostgresLine(database)
        self.presence = PostgresPresence(database)
        self.conversations = PostgresConversations(database, log)
        self.messages = PostgresMessages(database)
        self.branches = PostgresBranches(database, self.conversations)
        self.tasks = PostgresTasks(database)
        self.summaries = PostgresSummaries(database)
        self.shares = PostgresShares(database)
        self.accounts = PostgresAccounts(database)
        self.identities = PostgresIdentities(database)
        self.ledger = PostgresLedger(database)
        self.sessions = PostgresSessions(database)
        self.api_keys = PostgresApiKeys(database)
        self.prompts = PostgresPrompts(database)
        self.instructions = PostgresInstructions(database)
        self.evaluation = PostgresEvaluation(database)
        self.files = PostgresFiles(database)
        self.batches = PostgresBatches(database)
        self.batch_work = PostgresBatchWork(database)
        self.deletions = PostgresDeletions(database)
        self.erasure = PostgresErasure(database)
        self.transcripts = PostgresTranscripts(database)
        self.imports = PostgresImports(database)
        self.import_work = PostgresImportWork(database)

    @classmethod
    async def open(
        cls, url: str, log: Log, *, clock: Clock | None = None, connections: int = CONNECTIONS
    ) -> Self:
        """Opens (and migrates) the database at `postgresql://user:password@host:port/name`.

        StoreUnavailable says why it can't be used. NewerSchema: a newer version wrote it. A test
        hands in its `clock`; else all times are the database's.
        """
        return cls(await Database.open(url, clock, connections=connections), log)

    async def close(self) -> None:
        """Lets what runs end and lets the connections go."""
        await self._database.close()
