"""What the conformance tests share: the back ends, a clock that tests move, and short ways to say
who asks what. It never looks inside a back end."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from tertulia.backends.bell import LocalBell
from tertulia.backends.memory.fleet import MemoryHolds, MemoryHomes, MemoryRegistry
from tertulia.backends.memory.leases import MemoryLeases
from tertulia.backends.memory.rungs import MemoryRungs
from tertulia.backends.sqlite import SqliteBackend
from tertulia.backends.valkey import ValkeyBackend
from tertulia.core.quota import MILLI, cost
from tertulia.core.types import (
    Admission,
    Admitted,
    Budget,
    Entry,
    Failure,
    Finish,
    Limits,
    NewTurn,
    Note,
    Outcome,
    Reason,
    Refusal,
    Sampling,
    Status,
    Turn,
    Usage,
    User,
)
from tertulia.drills.servers import ServerFailed
from tertulia.drills.valkey_server import ValkeyServers
from tertulia.ports import (
    Accounts,
    ApiKeys,
    Bell,
    Branches,
    Conversations,
    Homes,
    Leases,
    Ledger,
    Line,
    Log,
    LooseTurns,
    Messages,
    Presence,
    Queue,
    Registry,
    Rungs,
    Sessions,
    Shares,
    Turns,
)
from tertulia.ports_of_batches import Batches, BatchWork, Files
from tertulia.ports_of_deletions import Deletions, Erasure
from tertulia.ports_of_identities import Identities
from tertulia.ports_of_moving import Imports, ImportWork, Transcripts
from tertulia.ports_of_operations import Holds
from tertulia.ports_of_prompts import Evaluation, Instructions, Prompts
from tertulia.ports_of_remembering import Summaries, Tasks

START = 1_796_000_000.0  # some second of 2026, not the first of its day
DAY_MS = 86_400_000


def tokens_a_day(tokens: int, *, replies_running: int = 1000, **more: Any) -> Limits:
    """Limits with one budget: so many tokens, full again after a day."""
    budget = Budget("tokens_day", "tokens", tokens * MILLI, DAY_MS)
    return Limits((budget,), replies_running, **more)


PLENTY = tokens_a_day(1_000_000, abandon_s=30.0)
# `fleet` is Postgres with its logs in Valkey; `postgres` alone keeps them in memory.
BACKENDS = ("memory", "sqlite", "postgres", "fleet")
WITH_LOGS = ("memory", "sqlite")  # the others are told of logs that are kept elsewhere
# What is in Valkey alone: on one server, and on a cluster.
VALKEYS = ("valkey", "valkey-cluster")
LOGS = (*WITH_LOGS, *VALKEYS)
# Bell, homes and registry: those of one process, and those of a fleet.
FLEETS = ("memory", *VALKEYS)
LEASE_S = 2.0


class Backend(Protocol):
    """Every back end: all ports over one store. A new one joins the list in `conftest.py`."""

    @property
    def turns(self) -> Turns: ...
    @property
    def loose(self) -> LooseTurns: ...
    @property
    def queue(self) -> Queue: ...
    @property
    def line(self) -> Line: ...
    @property
    def presence(self) -> Presence: ...
    @property
    def log(self) -> Log: ...
    @property
    def conversations(self) -> Conversations: ...
    @property
    def messages(self) -> Messages: ...
    @property
    def branches(self) -> Branches: ...
    @property
    def tasks(self) -> Tasks: ...
    @property
    def summaries(self) -> Summaries: ...
    @property
    def shares(self) -> Shares: ...
    @property
    def accounts(self) -> Accounts: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def identities(self) -> Identities: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def api_keys(self) -> ApiKeys: ...
    @property
    def files(self) -> Files: ...
    @property
    def batches(self) -> Batches: ...
    @property
    def batch_work(self) -> BatchWork: ...
    @property
    def deletions(self) -> Deletions: ...
    @property
    def erasure(self) -> Erasure: ...
    @property
    def transcripts(self) -> Transcripts: ...
    @property
    def imports(self) -> Imports: ...
    @property
    def import_work(self) -> ImportWork: ...
    @property
    def prompts(self) -> Prompts: ...
    @property
    def instructions(self) -> Instructions: ...
    @property
    def evaluation(self) -> Evaluation: ...
    async def close(self) -> None: ...


class ManualClock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.seconds = START

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def pass_(self, seconds: float) -> None:
        self.seconds += seconds


def open_sqlite(folder: Path, clock: ManualClock, empty: Path) -> Backend:
    """A fresh file. `empty` is one that is migrated already: migrating each time takes long."""
    shutil.copyfile(empty, folder / "tertulia.db")
    return SqliteBackend(folder / "tertulia.db", clock)


@dataclass(frozen=True, slots=True)
class FleetParts:
    """What processes share beside the store: as one of them has it, and another.

    `pass_` makes what replicas reported, what the ladder knows and the leases so many seconds
    older; `listens` returns once the other process can hear a topic.
    """

    bell: Bell
    other_bell: Bell
    homes: Homes
    other_homes: Homes
    holds: Holds
    other_holds: Holds
    registry: Registry
    rungs: Rungs
    other_rungs: Rungs
    leases: Leases
    other_leases: Leases
    pass_: Callable[[float], None]
    listens: Callable[[str], Awaitable[None]]


def memory_parts(clock: ManualClock) -> FleetParts:
    """Those of one process: both of the two are the same."""
    bell, homes, holds = LocalBell(), MemoryHomes(clock), MemoryHolds()
    rungs, leases = MemoryRungs(clock), MemoryLeases(clock)

    async def listens(_: str) -> None:
        await asyncio.sleep(0)

    return FleetParts(
        bell=bell,
        other_bell=bell,
        homes=homes,
        other_homes=homes,
        holds=holds,
        other_holds=holds,
        registry=MemoryRegistry(clock),
        rungs=rungs,
        other_rungs=rungs,
        leases=leases,
        other_leases=leases,
        pass_=clock.pass_,
        listens=listens,
    )


def valkey_parts(here: ValkeyBackend, there: ValkeyBackend, servers: ValkeyServers) -> FleetParts:
    """Those of two processes on the same servers."""

    def pass_(seconds: float) -> None:
        for server in servers.servers:
            for key in ("tertulia:registry", "tertulia:ladder"):
                with suppress(ServerFailed):  # it is another's key
                    noted = server.command("HGETALL", key)
                    for name, value in zip(noted[::2], noted[1::2], strict=True):
                        if name not in (b"rung", b"changes"):
                            server.command("HSET", key, name, _older(value, seconds))
            for key in server.command("KEYS", "tertulia:leases:*"):
                for lease in server.command("ZRANGE", key, "0", "-1"):
                    server.command("ZINCRBY", key, str(-int(seconds * 1000)), lease)

    async def listens(topic: str) -> None:
        asked = ("PUBSUB", "SHARDNUMSUB", f"tertulia:bell:{topic}")
        while not any(server.command(*asked)[1] for server in servers.servers):  # noqa: ASYNC110 - no server tells of it
            await asyncio.sleep(0.01)

    return FleetParts(
        bell=here.bell,
        other_bell=there.bell,
        homes=here.homes,
        other_homes=there.homes,
        holds=here.holds,
        other_holds=there.holds,
        registry=here.registry,
        rungs=here.rungs,
        other_rungs=there.rungs,
        leases=here.leases,
        other_leases=there.leases,
        pass_=pass_,
        listens=listens,
    )


def _older(stamped: bytes, seconds: float) -> bytes:
    """What was noted with a time in milliseconds before it, as if it had been so much sooner."""
    at, space, rest = stamped.partition(b" ")
    return b"%d%b%b" % (int(at) - int(seconds * 1000), space, rest)


def message(n: int | str, *, owner: str = "ana", conversation: str = "c_1", **more: Any) -> NewTurn:
    """The owner's message `n` in a conversation; its reply is `m_r{n}`."""
    new = NewTurn(
        owner=owner,
        key=f"key-{n}",
        body_sha=f"sha-{n}",
        kind="message",
        reply_id=f"m_r{n}",
        plan="free",
        requested="auto",
        answer_tokens=200,
        prompt_tokens=100,
        difficulty=640,
        sampling=Sampling(seed=7, stop=("END",)),
        conversation_id=conversation,
        user_message_id=f"m_u{n}",
        content=f"Question {n}",
        content_tokens=3,
        tokenizer="small",
        title=f"Title {n}",
    )
    return new._replace(**more)


def regenerate(n: int | str, user_message_id: str, **more: Any) -> NewTurn:
    """A further reply to a stored message."""
    return message(n)._replace(kind="regenerate", user_message_id=user_message_id, **more)


def stateless(n: int | str, *, owner: str = "ana", **more: Any) -> NewTurn:
    """A turn that brings its own messages."""
    new = message(n, owner=owner)._replace(
        kind="stateless", conversation_id=None, user_message_id=None
    )
    return new._replace(**more)


def refused(n: int | str) -> NewTurn:
    """A message whose text a check refused."""
    return message(n, refusal=Refusal("input", "harm", "I can't help with that."))


async def conversation(backend: Backend, *names: str, owner: str = "ana") -> None:
    for name in names or ("c_1",):
        await backend.conversations.create(owner, name, key=None, prompt_version="v1")


async def admitted(backend: Backend, new: NewTurn, limits: Limits = PLENTY) -> Turn:
    answer: Admission = await backend.turns.admit(new, limits)
    assert isinstance(answer, Admitted), answer
    return answer.turn


async def claimed(backend: Backend, *, skip: tuple[str, ...] = ()) -> Turn:
    turn = await backend.queue.claim(lease_s=LEASE_S, skip=skip)
    assert turn is not None
    return turn


async def answered(
    backend: Backend, new: NewTurn, limits: Limits = PLENTY, *, text: str = "Answer"
) -> Turn:
    """Admits, claims and completes a turn of 150 tokens; the finished turn."""
    turn = await admitted(backend, new, limits)
    held = await claimed(backend)
    assert held.reply_id == turn.reply_id
    assert await note(backend, held)
    assert await backend.turns.finish(held.held, completed(text=text))
    ended = await backend.turns.find(turn.owner, turn.reply_id)
    assert ended is not None
    return ended


async def note(
    backend: Backend,
    turn: Turn,
    *,
    epoch: int | None = None,
    pin: Literal["pin", "keep"] = "pin",
    summary_id: str | None = None,
) -> bool:
    noted = Note(
        attempt=turn.attempt,
        model="small-1",
        reason=Reason.AUTO,
        replica="replica-a",
        request_id=f"{turn.reply_id}-{turn.epoch}",
        prompt_tokens=100,
        pin=pin,
        notices=("context_shortened",),
        summary_id=summary_id,
    )
    return await backend.turns.note(
        turn.held if epoch is None else turn.held._replace(epoch=epoch), noted
    )


async def used_and_held(backend: Backend, owner: str) -> tuple[int, int, tuple[str, ...]]:
    """The tokens that the owner has settled, those that are reserved, and for which open replies.

    What came back between two settlements of the same moment is rounded away.
    """
    spent = await backend.accounts.spent(owner)
    used = spent.balances["tokens_day"].used if spent.balances else 0
    held = sum(cost("tokens", holding.worst_case) for holding in spent.holdings)
    return -(-used // MILLI), held // MILLI, spent.running


def completed(*, text: str = "Answer", **more: Any) -> Outcome:
    """An end of a turn; it costs 150 tokens unless another usage is given."""
    outcome = Outcome(
        status=Status.COMPLETED,
        attempt=1,
        finish=Finish.STOP,
        text=text,
        usage=Usage(100, 20, 50),
        last_event_id=4,
        ids=(1, 70_000, 3),
        tokenizer="small",
    )
    return replace(outcome, **more)


def entries(first: int, last: int, *, mark: str = "") -> tuple[Entry, ...]:
    """Entries `first` to `last`, each with its own bytes."""
    return tuple(
        Entry(n, "delta", f'{{"text":"{mark}{n}"}}'.encode(), bytes((n % 256, 0, 0, 0)))
        for n in range(first, last + 1)
    )


def person(name: str, **more: Any) -> User:
    return replace(User(f"u_{name}", name, "user", "free", "hash", START), **more)


FAILURE = Failure("replica_lost", "It broke.", retryable=True, retry_after_s=3)


async def failed_turn(backend: Backend, n: int) -> Turn:
    """A turn that ended as failed, with three entries in its log."""
    turn = await admitted(backend, message(n))
    held = await claimed(backend)
    fenced = await backend.log.fence(turn.reply_id, held.epoch, held.attempt)
    assert fenced is not None
    done = await backend.log.append(turn.reply_id, held.epoch, fenced.attempt, entries(1, 3))
    assert done == "done"
    outcome = completed(status=Status.FAILED, finish=None, failure=FAILURE, usage=Usage(output=40))
    assert await backend.turns.finish(held.held, outcome)
    ended = await backend.turns.find("ana", turn.reply_id)
    assert ended is not None
    return ended


async def everything(backend: Backend) -> object:
    """All that a refused call could have changed."""
    listed = [
        await backend.conversations.list(owner, cursor=None, limit=50, query="", archived=False)
        for owner in ("ana", "ben")
    ]
    pages = [
        await backend.messages.page(found.owner, found.id, before=None, limit=100)
        for page in listed
        for found in page.items
    ]
    turns = [await backend.turns.find("ana", f"m_r{n}") for n in range(10)]
    return listed, pages, turns, await backend.accounts.spent("ana")
