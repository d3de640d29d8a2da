"""Several fake replicas, the real client over them and a real worker: a fleet in one test's loop.

Nothing is replaced but the engines, which are `tests.fake_replica` on ports of their own.
"""

from __future__ import annotations

import asyncio
import zlib
from collections import defaultdict
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import quantiles

from tertulia.backends.bell import LocalBell
from tertulia.backends.checks import RulesChecks
from tertulia.backends.clock import SystemClock
from tertulia.backends.memory import MemoryBackend
from tertulia.backends.memory.fleet import MemoryHolds, MemoryHomes, MemoryRegistry
from tertulia.backends.memory.rungs import MemoryRungs
from tertulia.backends.replicas import HttpReplicas
from tertulia.backends.replicas.fleet import Fleet, FleetSource, ReplicaAddress
from tertulia.core.fleet import ReplicaReport, Wanted
from tertulia.core.plans import Plan
from tertulia.core.types import (
    Admitted,
    Append,
    Entry,
    GenerateRequest,
    Lane,
    Limits,
    ModelState,
    NewTurn,
    PromptMessage,
    Sampling,
    Status,
    TokenIds,
    Turn,
)
from tertulia.lookout import Lookout
from tertulia.worker.context import prompt_ids
from tertulia.worker.desk import WorkerDesk, WorkerRules
from tertulia.worker.loop import Worker
from tests.fake_answers import answer
from tests.fake_replica import FakeReplica
from tests.sim.language import EOS, SERVED, FakeVocabulary, split_sentences

VOCABULARY = FakeVocabulary()
OWNER = "ann"
LIMITS = Limits((), replies_running=10**6, lane=Lane.PLUS)
PLAN = Plan(name="plus", lane=Lane.PLUS, window_tokens=1500, answer_tokens=600, abandon_s=None)
PATIENCE_S = 40.0
# The fakes spell most of what they say: whole answers would take hundreds.
ANSWER_TOKENS = 60
REPORT_S = 0.1


@dataclass
class FakeFleet:
    """The engines by name, and the client over them."""

    engines: dict[str, FakeReplica]
    replicas: HttpReplicas
    clock: SystemClock
    registry: MemoryRegistry
    holds: MemoryHolds

    def rehearse(self, *texts: str) -> None:
        """Thinks of the answers now: an engine that computes would stop all others in this loop."""
        for text in texts:
            units = answer(VOCABULARY, question(text))
            for engine in self.engines.values():
                engine._answers[0, question(text)] = units

    async def ready(self, n: int) -> None:
        """Waits until so many are known to be well."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.well) < n:
                await self.replicas.changed(timeout_s=0.05)

    @property
    def well(self) -> list[str]:
        """The names of those that work may be sent to."""
        now = self.clock.now()
        known = self.replicas._watch.replicas.items()
        return [name for name, one in known if one.candidate(now).is_ready]


@asynccontextmanager
async def fake_fleet(
    *names: str, step_s: float = 0.002, slots: int = 64, registered: bool = False
) -> AsyncGenerator[FakeFleet, None]:
    """So many engines, listed in the settings or reporting themselves."""
    clock = SystemClock()
    registry, holds = MemoryRegistry(clock), MemoryHolds()
    async with AsyncExitStack() as closing, asyncio.TaskGroup() as tasks:
        engines = {}
        for name in names:
            engine = FakeReplica(VOCABULARY, SERVED, EOS, step_s=step_s)
            engines[name] = await closing.enter_async_context(engine.listening())
        addresses = tuple(
            ReplicaAddress(name, SERVED, engine.url, slots, engine="tertulia")
            for name, engine in engines.items()
        )
        models = (ModelState("small", SERVED, "starting"),)
        replicas = HttpReplicas(
            FleetSource(Fleet(models, () if registered else addresses)),
            vocabulary=lambda _: VOCABULARY,
            clock=clock,
            homes=MemoryHomes(clock),
            registry=registry if registered else None,
            holds=holds,
            pace_s=0.02,
        )
        running = [tasks.create_task(replicas.run())]
        if registered:
            for name, engine in engines.items():
                running.append(tasks.create_task(reporting(registry, name, engine, slots)))
        fleet = FakeFleet(engines, replicas, clock, registry, holds)
        await fleet.ready(len(names))
        # As if they had been there for long.
        for one in replicas._watch.replicas.values():
            one.up_at -= 100
        try:
            yield fleet
        finally:
            for task in running:
                task.cancel()


async def reporting(registry: MemoryRegistry, name: str, engine: FakeReplica, slots: int) -> None:
    """What a process says of itself while it moves."""
    while True:
        await engine.moving.wait()
        await registry.report(report_of(name, engine, slots))
        await asyncio.sleep(REPORT_S)


def report_of(name: str, engine: FakeReplica, slots: int = 64) -> ReplicaReport:
    return ReplicaReport(
        name=name,
        incarnation=f"{engine.port}",
        url=engine.url,
        model=SERVED,
        slots=slots,
        state="draining" if engine.draining else "ready",
        running=engine.n_running,
        tokens_done=sum(one.tokens for one in engine.log),
        pool="small",
    )


def question(text: str) -> TokenIds:
    """The prompt of one message."""
    return prompt_ids(VOCABULARY, said(text))


def said(text: str) -> tuple[PromptMessage, ...]:
    return (PromptMessage("user", text),)


def whole_answer(text: str, n_tokens: int = ANSWER_TOKENS) -> str:
    """What an undisturbed replica says to it."""
    return "".join(unit.text for unit in answer(VOCABULARY, question(text))[:n_tokens])


def asked(text: str, number: int = 0) -> GenerateRequest:
    """A request of its own for a message."""
    name = f"m_{zlib.crc32(text.encode())}-{number}-1"
    return GenerateRequest(
        name, SERVED, question(text), ANSWER_TOKENS, Sampling(), 0, OWNER, thread=text
    )


def wanted(text: str, number: int = 0) -> Wanted:
    request = asked(text, number)
    return Wanted(
        request.request_id, SERVED, request.thread, len(request.prompt), request.max_tokens
    )


@dataclass
class Answering:
    """A worker, its store, and when each reply's text was appended."""

    backend: MemoryBackend
    desk: WorkerDesk
    texts: dict[str, str] = field(default_factory=dict)
    spoken_at: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    async def ask(self, text: str) -> None:
        """Admits a message."""
        reply_id = f"m_{len(self.texts):05}"
        turn = NewTurn(
            owner=OWNER,
            key=reply_id,
            body_sha="",
            kind="stateless",
            reply_id=reply_id,
            plan="plus",
            requested="small",
            answer_tokens=ANSWER_TOKENS,
            prompt_tokens=len(question(text)),
            sampling=Sampling(),
            prompt=said(text),
        )
        assert isinstance(await self.backend.turns.admit(turn, LIMITS), Admitted)
        self.texts[reply_id] = text
        self.desk.bell.ring("turns")

    async def ended(self) -> Sequence[Turn]:
        """All turns, once each has ended."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                turns = [await self.backend.turns.find(OWNER, name) for name in self.texts]
                found = [turn for turn in turns if turn is not None]
                if all(turn.status.is_final for turn in found):
                    return found
                await asyncio.sleep(0.05)

    def faults(self, turns: Sequence[Turn]) -> list[str]:
        """What a reader would complain of."""
        return [
            f"{turn.reply_id} {turn.status} {turn.failure}: {turn.text!r}"
            for turn in turns
            if turn.status is not Status.COMPLETED
            or turn.text != whole_answer(self.texts[turn.reply_id])
        ]

    def pauses_s(self) -> list[float]:
        """Each reply's longest silence between two pieces of text."""
        return [
            max(b - a for a, b in pairwise(times))
            for times in self.spoken_at.values()
            if len(times) > 1
        ]


def p95(values: Sequence[float]) -> float:
    return quantiles(values, n=20)[-1]


@asynccontextmanager
async def answering(fleet: FakeFleet) -> AsyncGenerator[Answering, None]:
    """A worker over the fleet, which releases each token at once."""
    backend = MemoryBackend(fleet.clock)
    desk = WorkerDesk(
        turns=backend.turns,
        loose=backend.loose,
        queue=backend.queue,
        line=backend.line,
        log=backend.log,
        bell=LocalBell(),
        conversations=backend.conversations,
        messages=backend.messages,
        accounts=backend.accounts,
        files=backend.files,
        imports=backend.imports,
        batches=backend.batches,
        deletions=backend.deletions,
        erasure=backend.erasure,
        prompts=backend.prompts,
        instructions=backend.instructions,
        tasks=backend.tasks,
        summaries=backend.summaries,
        replicas=fleet.replicas,
        checks=RulesChecks(),
        vocabulary=lambda _: VOCABULARY,
        split=split_sentences,
        clock=fleet.clock,
        lookout=Lookout(MemoryRungs(fleet.clock), fleet.clock, name="worker"),
        plans={"plus": PLAN},
        rules=WorkerRules(sentence_tokens=1, replies=1_000, tasks=0),
    )
    here = Answering(backend, desk)
    append = backend.log.append

    async def noted(reply_id: str, epoch: int, attempt: int, entries: Sequence[Entry]) -> Append:
        if any(entry.kind == "delta" for entry in entries):
            here.spoken_at[reply_id].append(fleet.clock.now())
        return await append(reply_id, epoch, attempt, entries)

    backend.log.append = noted  # type: ignore[method-assign]  # a stop-watch beside the log
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(Worker(desk).run())
        try:
            yield here
        finally:
            working.cancel()
