"""Simulated gateways and workers: the real lanes, each process with its own wires to the store.

Nothing of the product is replaced here but what stands outside of it: the network, the engines
and the routes, which are a few lines each.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Final, cast

from tertulia.backends.bell import LocalBell
from tertulia.backends.grader import FeatureGrader
from tertulia.backends.memory import MemoryBackend
from tertulia.backends.memory.fleet import MemoryHolds
from tertulia.backends.memory.leases import MemoryLeases
from tertulia.backends.memory.promises import MemoryPromises
from tertulia.backends.memory.rungs import MemoryRungs
from tertulia.core.plans import Plan
from tertulia.core.quota import MILLI
from tertulia.core.rollout import ALL, Rollout
from tertulia.core.types import Budget, Lane, Status, Turn, User
from tertulia.gateway.admit import Answer, Ask, admit_turn
from tertulia.gateway.caller import Caller
from tertulia.gateway.counters import Counters
from tertulia.gateway.desk import Desk, GatewayRules
from tertulia.gateway.follow import Ahead, Finished, resume_point
from tertulia.gateway.line import LineWatch
from tertulia.gateway.pulse import Pulse
from tertulia.gateway.refusals import Refusals
from tertulia.gateway.sse import EventStream, NativeRender
from tertulia.gateway.stop import stop_reply
from tertulia.gateway.streams import OpenStreams, Seat
from tertulia.lookout import Lookout
from tertulia.ports import StoreUnavailable
from tertulia.wiring.planning import ProcessPlanning
from tertulia.worker.desk import WorkerDesk, WorkerRules
from tertulia.worker.loop import Worker
from tests.sim.engines import EnginePort, Engines, FlaggingChecks
from tests.sim.language import FakeVocabulary, split_sentences
from tests.sim.process import Process, Report
from tests.sim.virtual import VirtualClock, VirtualLoop
from tests.sim.wire import FleetBell, ProcessClock, Remote, Trace, Watch, Weather

ABANDON_S: Final = 8.0  # shorter than the product's 30 s, so that it happens in a short run


def plans_of(free_tokens: int) -> dict[str, Plan]:
    """The plans of a world where the free one has so many tokens a day, and bursts of half that."""
    free = Plan(
        name="free",
        window_tokens=700,
        answer_tokens=40,
        budgets=(
            Budget("tokens_day", "tokens", free_tokens * MILLI, 86_400_000),
            Budget("units_minute", "units", free_tokens * MILLI // 2, 60_000),
            Budget("turns_minute", "turns", 60 * MILLI, 60_000),
        ),
        abandon_s=ABANDON_S,
        min_answer_tokens=8,
    )
    plus = Plan(
        name="plus",
        lane=Lane.PLUS,
        window_tokens=1500,
        answer_tokens=64,
        budgets=(Budget("tokens_day", "tokens", 400_000 * MILLI, 86_400_000),),
        replies_running=3,
        abandon_s=ABANDON_S,
        min_answer_tokens=8,
    )
    return {"free": free, "plus": plus}


VERSION: Final = "v1"
_SYSTEM: Final = "the oak and the elm."


@dataclass(frozen=True, slots=True)
class Climate:
    """What differs from world to world beside the faults: flagged words, money, patience."""

    flagged: frozenset[str]
    plans: Mapping[str, Plan]
    rules: WorkerRules
    stop_share: float = 0.15
    # How many calls hang in the network longer than a lease lasts.
    stuck_share: float = 0.002


def climate(rng: random.Random) -> Climate:
    """A climate by chance; an impatient one gives turns up that others would still answer."""
    rules = WorkerRules(sentence_tokens=24, tasks=0)
    if rng.random() < 0.4:
        rules = replace(rules, replica_wait_s=1.5, continuations=1, stale_s=4.0, queued_s=6.0)
    return Climate(
        flagged=frozenset((" cedar",)) if rng.random() < 0.4 else frozenset(),
        plans=plans_of(rng.choice((1_200, 30_000, 30_000))),
        rules=rules,
        stop_share=rng.choice((0.15, 0.15, 0.5)),
        stuck_share=rng.choice((0.002, 0.002, 0.02)),
    )


class ConnectionLost(Exception):
    """The other end is gone; what was asked may have happened or not."""


class Connection:
    """A response in progress: bytes on their way to a client."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._chunks: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self.dropped: asyncio.Future[None] = loop.create_future()
        self.end: str | None = None

    def push(self, data: bytes) -> None:
        if self.end is None and data:
            self._chunks.append(data)
            self._arrived.set()

    def close(self, end: str) -> None:
        if self.end is None:
            self.end = end
            self._arrived.set()

    def cut(self, rng: random.Random) -> None:
        """The server died: what was on its way is lost from some byte on."""
        if self._chunks and rng.random() < 0.5:
            last = self._chunks.pop()
            self._chunks.append(last[: rng.randrange(len(last) + 1)])
        self.close("reset")

    async def read(self, timeout_s: float) -> bytes | None:
        """What has arrived; None at the end; TimeoutError if nothing comes."""
        while not self._chunks:
            if self.end is not None:
                return None
            self._arrived.clear()
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()
        data = b"".join(self._chunks)
        self._chunks.clear()
        return data

    def drop(self) -> None:
        """The client is gone."""
        self.close("dropped")
        self._chunks.clear()
        if not self.dropped.done():
            self.dropped.set_result(None)


class Fleet:
    """Every process, the shared store and log, and how to start an incarnation."""

    def __init__(
        self,
        loop: VirtualLoop,
        rng: random.Random,
        report: Report,
        watch: Watch,
        the_climate: Climate,
    ) -> None:
        self.loop = loop
        self.rng = rng
        self.report = report
        self.trace = Trace()
        self.clock = VirtualClock(loop)
        self.shared = MemoryBackend(self.clock)
        self.shared.store.rollout = Rollout(VERSION, VERSION, ALL, VERSION)
        self.bell = LocalBell()
        self.promises = MemoryPromises(self.clock)
        self.weather = {
            name: Weather(random.Random(rng.random()), the_climate.stuck_share)
            for name in ("store", "log")
        }
        self.engines = Engines(loop, random.Random(rng.random()), report, n=3)
        self.gateways = [Gateway(self, f"gw{i}") for i in range(3)]
        self.workers = [WorkerPlace(self, f"w{i}") for i in range(3)]
        self._watch = watch
        self.climate = the_climate
        self._ids = 0

    def port(self, process: Process, name: str) -> Any:
        """A port of the shared store or log over this process's wire."""
        weather = self.weather["log" if name == "log" else "store"]
        target = getattr(self.shared, name)
        return Remote(
            process, self.loop, weather, target, name=name, watch=self._watch, trace=self.trace
        )

    def engine_port(self, process: Process) -> EnginePort:
        return EnginePort(process, self.loop, self.engines, random.Random(self.rng.random()))

    def checks(self, process: Process) -> FlaggingChecks:
        return FlaggingChecks(process, self.climate.flagged, random.Random(self.rng.random()))

    def bell_of(self, process: Process) -> FleetBell:
        return FleetBell(process, self.bell, random.Random(self.rng.random()))

    def clock_of(self, process: Process) -> ProcessClock:
        return ProcessClock(process, self.clock)

    def lookout_of(self, process: Process) -> Lookout:
        clock = self.clock_of(process)
        return Lookout(MemoryRungs(clock), clock, name=process.name)

    def status_of(self, reply_id: str) -> Status | None:
        """Where a turn stands, for those who look from outside."""
        turn = self.shared.store.turns.get(reply_id)
        return turn.status if turn is not None else None

    def log_names(self) -> list[str]:
        """The replies that have a log, oldest first."""
        return [name for name, reply in self.shared.log._replies.items() if not reply.buried_at]

    def lose_log(self, reply_id: str) -> None:
        """The log's system forgets one reply, as a cache may."""
        self.trace.note(f"lost {reply_id}")
        self.shared.log.lose(reply_id)
        self._watch("log", "lose", (reply_id,), {}, None)

    def fail_over(self, copied: Mapping[str, object]) -> None:
        """The logs' system is another one from now on, which had only this copy."""
        self.trace.note("failed over")
        self.shared.log.fail_over(copied)
        self._watch("log", "fail_over", (), {}, None)

    def new_id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}_{int(self.loop.time() * 1000):08d}{self._ids:06d}"


class Place:
    """Where a process runs: it is started again after each death."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self._fleet = fleet
        self.name = name
        self.process: Process | None = None
        self.incarnations = 0

    def start(self) -> None:
        assert self.process is None or not self.process.alive
        self.incarnations += 1
        name = f"{self.name}.{self.incarnations}"
        self.process = Process(name, self._fleet.loop, self._fleet.report)
        self._begin(self.process)

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.alive

    def _begin(self, process: Process) -> None:
        raise NotImplementedError


class WorkerPlace(Place):
    """Runs the real worker loop."""

    worker: Worker

    def _begin(self, process: Process) -> None:
        fleet = self._fleet
        desk = WorkerDesk(
            turns=fleet.port(process, "turns"),
            loose=fleet.port(process, "loose"),
            queue=fleet.port(process, "queue"),
            line=fleet.port(process, "line"),
            log=fleet.port(process, "log"),
            bell=fleet.bell_of(process),
            conversations=fleet.port(process, "conversations"),
            messages=fleet.port(process, "messages"),
            accounts=fleet.port(process, "accounts"),
            files=fleet.port(process, "files"),
            imports=fleet.port(process, "imports"),
            batches=fleet.port(process, "batches"),
            deletions=fleet.port(process, "deletions"),
            erasure=fleet.port(process, "erasure"),
            prompts=fleet.port(process, "prompts"),
            instructions=fleet.port(process, "instructions"),
            tasks=fleet.port(process, "tasks"),
            summaries=fleet.port(process, "summaries"),
            replicas=fleet.engine_port(process),
            checks=fleet.checks(process),
            vocabulary=lambda _: FakeVocabulary(),
            split=split_sentences,
            clock=fleet.clock_of(process),
            lookout=fleet.lookout_of(process),
            plans=fleet.climate.plans,
            rules=fleet.climate.rules,
        )
        self.worker = Worker(desk)
        process.spawn(self.worker.run(), "worker")


class Gateway(Place):
    """Runs the real ask, follow and stop lanes behind the thinnest of routes."""

    desk: Desk

    def _begin(self, process: Process) -> None:
        fleet = self._fleet
        # Nobody here opens too many streams: what is simulated is the turn protocol.
        leases, self._streams = MemoryLeases(fleet.clock), count()
        counters = Counters(leases, leases, fleet.clock)
        self.desk = Desk(
            turns=fleet.port(process, "turns"),
            loose=fleet.port(process, "loose"),
            presence=fleet.port(process, "presence"),
            log=fleet.port(process, "log"),
            bell=fleet.bell_of(process),
            conversations=fleet.port(process, "conversations"),
            messages=fleet.port(process, "messages"),
            branches=fleet.port(process, "branches"),
            prompts=fleet.port(process, "prompts"),
            instructions=fleet.port(process, "instructions"),
            shares=fleet.port(process, "shares"),
            accounts=fleet.port(process, "accounts"),
            identities=fleet.port(process, "identities"),
            sessions=fleet.port(process, "sessions"),
            api_keys=fleet.port(process, "api_keys"),
            files=fleet.port(process, "files"),
            batches=fleet.port(process, "batches"),
            batch_work=fleet.port(process, "batch_work"),
            deletions=fleet.port(process, "deletions"),
            erasure=fleet.port(process, "erasure"),
            transcripts=fleet.port(process, "transcripts"),
            imports=fleet.port(process, "imports"),
            import_work=fleet.port(process, "import_work"),
            replicas=fleet.engine_port(process),
            checks=fleet.checks(process),
            grader=FeatureGrader(),
            vocabulary=lambda _: FakeVocabulary(),
            clock=fleet.clock_of(process),
            new_id=fleet.new_id,
            line=LineWatch(
                fleet.port(process, "line"),
                fleet.promises,
                fleet.engine_port(process),
                fleet.clock_of(process),
            ),
            lookout=fleet.lookout_of(process),
            refusals=Refusals(fleet.port(process, "accounts"), fleet.clock_of(process)),
            counters=counters,
            streams=OpenStreams(counters),
            plans=fleet.climate.plans,
            rules=GatewayRules(),
            # Nobody looks at a simulated fleet.
            holds=MemoryHolds(),
            planning=ProcessPlanning(),
            pulse=cast("Pulse", None),
        )
        process.spawn(self.desk.streams.beat(self.desk.presence, self.desk.clock), "beat")

    async def create(self, owner: str, conversation_id: str) -> Any:
        async def work() -> Any:
            await self.desk.conversations.prompt_text(VERSION, store=_SYSTEM)
            return await self.desk.conversations.create(
                owner, conversation_id, key=None, prompt_version=VERSION
            )

        return await self._call(work, "create")

    async def post(self, user: User, ask: Ask) -> Answer:
        return cast(Answer, await self._call(lambda: admit_turn(self.desk, user, ask), "post"))

    async def stop(self, owner: str, reply_id: str) -> Turn | None:
        return cast(
            "Turn | None",
            await self._call(lambda: stop_reply(self.desk, owner, reply_id, "stopped"), "stop"),
        )

    async def delete(self, owner: str, conversation_id: str) -> Any:
        return await self._call(
            lambda: self.desk.conversations.delete(owner, conversation_id), "delete"
        )

    async def stream(
        self, owner: str, reply_id: str, last_id: int, attempt: int | None
    ) -> Connection | int:
        """An open stream, or the status of the answer: 204, 404 or 409."""

        async def work() -> EventStream | int:
            turn = await self.desk.turns.find(owner, reply_id)
            if turn is None:
                return 404
            point = await resume_point(self.desk, turn, last_id or None, attempt)
            if isinstance(point, Finished):
                return 204
            if isinstance(point, Ahead):
                return 409
            seat = Seat(owner, f"s_{next(self._streams)}")
            caller = Caller(User(owner, owner, "user", turn.plan, None, 0.0), "a key")
            render = NativeRender(1000)
            return EventStream(self.desk, turn, caller, seat, render=render, begin=point)

        found = await self._call(work, "stream")
        if isinstance(found, int):
            return found
        return self._open(found)

    def _open(self, stream: EventStream) -> Connection:
        process = self.process
        if process is None or not process.alive:
            raise ConnectionLost
        connection = Connection(self._fleet.loop)
        rng = self._fleet.rng

        def die() -> None:
            connection.cut(rng)

        async def receive() -> Any:
            await connection.dropped
            await process.gate()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            await process.gate()
            if message["type"] == "http.response.body":
                connection.push(message["body"])

        async def serve() -> None:
            try:
                await stream({}, receive, send)
                connection.close("end")
            finally:
                process.at_death.pop(die, None)
                connection.cut(rng)

        process.at_death[die] = None
        process.spawn(serve(), "stream")
        return connection

    async def _call(self, work: Callable[[], Coroutine[Any, Any, Any]], name: str) -> Any:
        """One request and its answer; StoreUnavailable is the 503 that a route makes of it."""
        process = self.process
        if process is None or not process.alive:
            raise ConnectionLost
        answered = self._fleet.loop.create_future()

        def die() -> None:
            if not answered.done():
                answered.set_exception(ConnectionLost())

        async def serve() -> None:
            try:
                answer = await work()
                await process.gate()
            except StoreUnavailable as error:
                if not answered.done():
                    answered.set_exception(error)
                return
            finally:
                process.at_death.pop(die, None)
            if not answered.done():
                answered.set_result(answer)

        process.at_death[die] = None
        process.spawn(serve(), name)
        async with asyncio.timeout(15):
            return await answered
