"""Opens the stores that the settings name: one SQLite file, or Postgres and Valkey of a fleet.

A store of a fleet that is not there yet is waited for, with a bound, so that processes may be
started in any order. No message of this module shows a password.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import structlog

from tertulia.backends.bell import LocalBell
from tertulia.backends.memory.fleet import MemoryHolds, MemoryHomes
from tertulia.backends.memory.leases import MemoryLeases
from tertulia.backends.memory.promises import MemoryPromises
from tertulia.backends.memory.rungs import MemoryRungs
from tertulia.backends.sqlite import SqliteBackend
from tertulia.config import Settings
from tertulia.fleet_tables import shown_address
from tertulia.ports import (
    Accounts,
    ApiKeys,
    Bell,
    Branches,
    Clock,
    Conversations,
    Homes,
    Leases,
    Ledger,
    Line,
    Log,
    LooseTurns,
    Messages,
    Presence,
    Promises,
    Queue,
    Registry,
    Rungs,
    Sessions,
    Shares,
    StoreUnavailable,
    Turns,
)
from tertulia.ports_of_batches import Batches, BatchWork, Files
from tertulia.ports_of_deletions import Deletions, Erasure
from tertulia.ports_of_identities import Identities
from tertulia.ports_of_moving import Imports, ImportWork, Transcripts
from tertulia.ports_of_operations import Holds
from tertulia.ports_of_prompts import Instructions, Prompts
from tertulia.ports_of_remembering import Summaries, Tasks
from tertulia.wiring.models import replica_key

if TYPE_CHECKING:
    from tertulia.backends.postgres import PostgresBackend
    from tertulia.backends.valkey import ValkeyBackend

_log = structlog.get_logger(__name__)

# A database that recovers after a crash takes some seconds, one that is installed together with the
# fleet about a minute. Whoever is started by an orchestrator is started again after that.
_WAIT_S = 60.0
_FIRST_PAUSE_S = 0.25
_LONGEST_PAUSE_S = 2.0

# What each extra brings; any other missing module is a fault of ours.
_EXTRAS = {"asyncpg": "fleet", "hiredis": "fleet", "authlib": "oidc", "joserfc": "oidc"}

_Opened = TypeVar("_Opened")


class CantOpen(Exception):
    """A store can't be used, and trying again would not help soon; the message says why."""


@dataclass(frozen=True, slots=True)
class Stores:
    """Where the lanes meet."""

    turns: Turns
    loose: LooseTurns
    queue: Queue
    line: Line
    presence: Presence
    conversations: Conversations
    messages: Messages
    branches: Branches
    tasks: Tasks
    summaries: Summaries
    shares: Shares
    accounts: Accounts
    identities: Identities
    ledger: Ledger
    sessions: Sessions
    api_keys: ApiKeys
    files: Files
    batches: Batches
    batch_work: BatchWork
    deletions: Deletions
    erasure: Erasure
    transcripts: Transcripts
    imports: Imports
    import_work: ImportWork
    prompts: Prompts
    instructions: Instructions
    log: Log
    bell: Bell
    homes: Homes
    holds: Holds
    promises: Promises
    rungs: Rungs
    registry: Registry | None
    leases: Leases

    @property
    def is_shared(self) -> bool:
        """Whether other processes may be using them: only then there is a registry."""
        return self.registry is not None


@contextmanager
def needs_extra(who: str) -> Iterator[None]:
    """For imports of what only an extra brings; CantOpen says who needs what."""
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        extra = _EXTRAS.get(package)
        if extra is None:
            raise
        raise CantOpen(
            f"{who} needs the package {package}, which is not installed: "
            f"`scripts/setup {extra}`, or pip install 'tertulia[{extra}]'"
        ) from None


@asynccontextmanager
async def opened_stores(settings: Settings, clock: Clock) -> AsyncGenerator[Stores, None]:
    """The stores, closed at the end. CantOpen or StoreUnavailable say why there are none."""
    async with AsyncExitStack() as closing:
        if settings.fleet.database is None:
            yield _one_file(settings, clock, closing)
        else:
            yield await _of_a_fleet(settings, clock, closing)


def _one_file(settings: Settings, clock: Clock, closing: AsyncExitStack) -> Stores:
    opened = SqliteBackend(settings.database, clock)
    closing.push_async_callback(opened.close)
    return _stores(
        opened,
        log=opened.log,
        bell=LocalBell(),
        homes=MemoryHomes(clock),
        holds=MemoryHolds(),
        promises=MemoryPromises(clock),
        rungs=MemoryRungs(clock),
        registry=None,
        leases=MemoryLeases(clock),
    )


async def _of_a_fleet(settings: Settings, clock: Clock, closing: AsyncExitStack) -> Stores:
    with needs_extra("[fleet]"):
        from tertulia.backends.postgres import PostgresBackend
        from tertulia.backends.valkey import UnfitServer, ValkeyBackend
    fleet = settings.fleet
    assert fleet.database is not None
    database = fleet.database
    nodes = [node.get_secret_value() for node in fleet.valkey]
    try:
        # One that can't be reached is looked for from here on: signing in and reading need none.
        valkey = await ValkeyBackend.open(
            nodes, log_kept_s=settings.worker.log_kept_s, replica_key=replica_key(settings)
        )
    except (UnfitServer, ValueError) as error:
        raise CantOpen(f"Valkey can't be used: {error}") from None
    closing.push_async_callback(valkey.close)
    counters = await _counters(settings, valkey, closing)
    postgres = await _when_there(
        "Postgres",
        shown_address(database),
        lambda: PostgresBackend.open(database.get_secret_value(), valkey.log),
        clock,
    )
    closing.push_async_callback(postgres.close)
    return _stores(
        postgres,
        log=valkey.log,
        bell=valkey.bell,
        homes=valkey.homes,
        holds=valkey.holds,
        promises=valkey.promises,
        rungs=valkey.rungs,
        registry=valkey.registry,
        leases=counters.leases,
    )


async def _counters(
    settings: Settings, fleets: ValkeyBackend, closing: AsyncExitStack
) -> ValkeyBackend:
    """Where all gateways count together: a Valkey of its own, if there is one. It may be away."""
    from tertulia.backends.valkey import UnfitServer, ValkeyBackend

    nodes = [node.get_secret_value() for node in settings.fleet.counters]
    if not nodes:
        return fleets
    try:
        counters = await ValkeyBackend.open(nodes)
    except (UnfitServer, ValueError) as error:
        raise CantOpen(f"the Valkey of fleet.counters can't be used: {error}") from None
    closing.push_async_callback(counters.close)
    return counters


def _stores(
    kept: SqliteBackend | PostgresBackend,
    *,
    log: Log,
    bell: Bell,
    homes: Homes,
    holds: Holds,
    promises: Promises,
    rungs: Rungs,
    registry: Registry | None,
    leases: Leases,
) -> Stores:
    return Stores(
        turns=kept.turns,
        loose=kept.loose,
        queue=kept.queue,
        line=kept.line,
        presence=kept.presence,
        conversations=kept.conversations,
        messages=kept.messages,
        branches=kept.branches,
        tasks=kept.tasks,
        summaries=kept.summaries,
        shares=kept.shares,
        accounts=kept.accounts,
        identities=kept.identities,
        ledger=kept.ledger,
        sessions=kept.sessions,
        api_keys=kept.api_keys,
        files=kept.files,
        batches=kept.batches,
        batch_work=kept.batch_work,
        deletions=kept.deletions,
        erasure=kept.erasure,
        transcripts=kept.transcripts,
        imports=kept.imports,
        import_work=kept.import_work,
        prompts=kept.prompts,
        instructions=kept.instructions,
        log=log,
        bell=bell,
        homes=homes,
        holds=holds,
        promises=promises,
        rungs=rungs,
        registry=registry,
        leases=leases,
    )


async def _when_there(
    name: str, address: str, open_it: Callable[[], Awaitable[_Opened]], clock: Clock
) -> _Opened:
    """What `open_it` gives as soon as the store answers; CantOpen when it does not for a minute."""
    until, pause_s, said = clock.now() + _WAIT_S, _FIRST_PAUSE_S, ""
    while True:
        try:
            return await open_it()
        except StoreUnavailable as error:
            if clock.now() >= until:
                raise CantOpen(
                    f"{name} at {address} could not be used for {_WAIT_S:.0f} s: {error}"
                ) from None
            if str(error) != said:  # each reason once
                said = str(error)
                _log.warning(
                    "waiting_for_store", store=name, at=address, why=said, at_most_s=_WAIT_S
                )
        await clock.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
