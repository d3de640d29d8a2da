"""Simulated replicas, for tests only: they say what `language` says, at a seeded speed, and fail.

Each keeps a log of its generations, with which the checker compares what was charged and stored.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tertulia.core.deletions import CacheAnswer
from tertulia.core.fleet import Wanted
from tertulia.core.types import (
    GenerateRequest,
    ModelState,
    Said,
    TokenIds,
    Unit,
    Usage,
    Verdict,
)
from tertulia.ports import ReplicaLost, ReplicaRefused
from tests.sim.language import EOS, SERVED, answer_to, ids_of, split_prompt
from tests.sim.process import Process, Report
from tests.sim.virtual import VirtualLoop

# A client that has heard nothing for this long takes the replica for dead.
_SILENCE_S: Final = 2.0
_ABORT_WAIT_S: Final = 1.0


@dataclass(slots=True, eq=False)
class Generation:
    """One sequence on one replica."""

    request_id: str
    replica: str
    question: TokenIds
    said_before: int
    max_tokens: int
    units: tuple[Unit, ...]
    finish: str
    started_at: float
    first_at: float
    step_s: float
    breaks_at: int | None
    n_given: int = 0
    tokens: int = 0
    ended_at: float | None = None
    reason: str = ""

    @property
    def reply_id(self) -> str:
        return self.request_id.rsplit("-", 2)[0]

    @property
    def epoch(self) -> int:
        return int(self.request_id.rsplit("-", 2)[1])

    def end(self, now: float, reason: str) -> None:
        if self.ended_at is None:
            self.ended_at, self.reason = now, reason

    def produce(self, now: float) -> tuple[Unit, ...]:
        """The units that were made since the last look."""
        if now < self.first_at:
            return ()
        n_made = min(len(self.units), int((now - self.first_at) / self.step_s) + 1)
        if self.breaks_at is not None:
            n_made = min(n_made, self.breaks_at)
        units = self.units[self.n_given : n_made]
        self.n_given = max(self.n_given, n_made)
        self.tokens += sum(len(unit.ids) for unit in units)
        return units

    @property
    def is_done(self) -> bool:
        return self.n_given >= len(self.units)


@dataclass(slots=True)
class SimReplica:
    """One engine process. `incarnation` grows with each restart; its sequences die with it."""

    name: str
    step_s: float
    alive: bool = True
    stalled_until: float = -1.0
    refusing_until: float = -1.0
    running: dict[str, Generation] = field(default_factory=dict)

    def kill(self, now: float) -> None:
        self.alive = False
        for generation in self.running.values():
            generation.end(now, "killed")
        self.running.clear()


class Engines:
    """All replicas, and the log of everything that they did."""

    def __init__(self, loop: VirtualLoop, rng: random.Random, report: Report, *, n: int) -> None:
        self._loop = loop
        self._rng = rng
        self._report = report
        self.troubled = True
        self.replicas = {
            f"r{i}": SimReplica(f"r{i}", rng.choice((0.01, 0.02, 0.03))) for i in range(n)
        }
        self.generations: list[Generation] = []

    def begin(self, replica: SimReplica, request: GenerateRequest) -> Generation:
        """Starts a sequence; what was said before must be how the answer begins."""
        if request.request_id in replica.running:
            self._report("engine", f"{request.request_id} was sent twice to {replica.name}")
        question, before = split_prompt(request.prompt)
        whole = answer_to(question)
        said, n_units = 0, 0
        while said < len(before) and n_units < len(whole):
            said += len(whole[n_units].ids)
            n_units += 1
        if ids_of(whole[:n_units]) != before:
            self._report("C8", f"{request.request_id} continues with tokens that were never said")
        units: list[Unit] = []
        left = request.max_tokens
        for unit in whole[n_units:]:
            if len(unit.ids) > left:
                break
            units.append(unit)
            left -= len(unit.ids)
        now, rng = self._loop.time(), self._rng
        generation = Generation(
            request_id=request.request_id,
            replica=replica.name,
            question=question,
            said_before=len(before),
            max_tokens=request.max_tokens,
            units=tuple(units),
            finish="stop" if n_units + len(units) == len(whole) else "length",
            started_at=now,
            first_at=now + rng.uniform(0.01, 0.15),
            step_s=replica.step_s * rng.uniform(0.8, 1.5),
            breaks_at=rng.randint(0, 20) if self.troubled and rng.random() < 0.05 else None,
        )
        replica.running[request.request_id] = generation
        self.generations.append(generation)
        return generation

    def end(self, replica: SimReplica, generation: Generation, reason: str) -> None:
        """The sequence leaves the batch. A stalled engine notices later, but makes no token."""
        generation.end(self._loop.time(), reason)
        replica.running.pop(generation.request_id, None)

    def heal(self) -> None:
        """No more faults of the engines' own."""
        self.troubled = False
        for replica in self.replicas.values():
            replica.alive = True
            replica.stalled_until = replica.refusing_until = -1.0


class EnginePort:
    """The `Replicas` port as one process sees it."""

    def __init__(
        self, process: Process, loop: VirtualLoop, engines: Engines, rng: random.Random
    ) -> None:
        self._process = process
        self._loop = loop
        self._engines = engines
        self._rng = rng

    def models(self) -> Sequence[ModelState]:
        ready = any(replica.alive for replica in self._engines.replicas.values())
        state = ModelState("small", SERVED, "ready" if ready else "starting", 64, 1500)
        return (state,)

    async def place(self, wanted: Wanted) -> str | None:
        assert wanted.model == SERVED, wanted
        await self._process.gate()
        await asyncio.sleep(self._rng.choice((0.0, 0.0, 0.001)))  # a home is asked for
        await self._process.gate()
        # What was heard of a replica is old: one in ten places meets a dead one.
        stale = self._rng.random() < 0.1
        names = [
            replica.name for replica in self._engines.replicas.values() if replica.alive or stale
        ]
        names = [name for name in names if name not in wanted.avoid] or names
        return self._rng.choice(names) if names else None

    async def changed(self, *, timeout_s: float) -> None:
        await self._process.gate()
        await asyncio.sleep(timeout_s)
        await self._process.gate()

    async def abort(self, replica: str, request_id: str) -> None:
        """Returns when the sequence is gone; a stalled or dead engine is waited for a second."""
        await self._process.gate()
        await asyncio.sleep(self._rng.choice((0.0, 0.001, 0.02)))
        engine = self._engines.replicas[replica]
        now = self._loop.time()
        if now < engine.stalled_until:
            await asyncio.sleep(min(_ABORT_WAIT_S, engine.stalled_until - now))
        elif self._engines.troubled and self._rng.random() < 0.1:
            await asyncio.sleep(self._rng.uniform(0.05, _ABORT_WAIT_S))
        generation = engine.running.get(request_id)
        if generation is not None:
            self._engines.end(engine, generation, "abort")
        await self._process.gate()

    async def forget(self, owner: str, conversation_id: str | None) -> dict[str, CacheAnswer]:
        """These engines keep no cache: each that lives has nothing of it."""
        await self._process.gate()
        return {
            name: "forgotten" if engine.alive else "unanswered"
            for name, engine in self._engines.replicas.items()
        }

    async def generate(
        self, replica: str, request: GenerateRequest, **_: object
    ) -> AsyncGenerator[Said, None]:
        await self._process.gate()
        await asyncio.sleep(self._rng.choice((0.0, 0.001, 0.01)))
        await self._process.gate()
        engine = self._engines.replicas[replica]
        if not engine.alive:
            raise ReplicaLost("connection refused")
        if self._loop.time() < engine.refusing_until:
            raise ReplicaRefused(503, "busy", "full", 0.2)
        generation = self._engines.begin(engine, request)
        try:
            while True:
                await asyncio.sleep(self._rng.uniform(0.03, 0.12))
                await self._process.gate()
                await self._outlast_silence(engine)
                said = self._next(generation)
                if said is None:
                    continue
                yield said
                if said.finish is not None:
                    return
        finally:
            self._engines.end(engine, generation, "closed")

    async def _outlast_silence(self, engine: SimReplica) -> None:
        silent_s = engine.stalled_until - self._loop.time()
        if silent_s <= 0:
            return
        await asyncio.sleep(min(silent_s, _SILENCE_S))
        await self._process.gate()
        if silent_s > _SILENCE_S:
            raise ReplicaLost("silent")

    def _next(self, generation: Generation) -> Said | None:
        if generation.reason == "abort":
            return Said((), "abort")
        if generation.reason == "killed":
            raise ReplicaLost("reset")
        units = generation.produce(self._loop.time())
        if generation.is_done:
            generation.end(self._loop.time(), generation.finish)
            last = (Unit("", (EOS,)),) if generation.finish == "stop" else ()
            usage = Usage(
                input=len(generation.question) + generation.said_before, output=generation.tokens
            )
            return Said((*units, *last), generation.finish, usage)
        if generation.breaks_at is not None and generation.n_given >= generation.breaks_at:
            raise ReplicaLost("the stream broke")
        return Said(units) if units else None


class FlaggingChecks:
    """The `Checks` port: flags every sentence with one of the words of this world."""

    def __init__(self, process: Process, flagged: frozenset[str], rng: random.Random) -> None:
        self._process = process
        self._flagged = flagged
        self._rng = rng

    async def check_input(self, text: str) -> Verdict:
        return self._verdict("forbidden request" in text)

    async def check_output(self, before: str, sentence: str) -> Verdict:
        await self._process.gate()
        if self._rng.random() < 0.3:
            await asyncio.sleep(self._rng.uniform(0.0, 0.02))
            await self._process.gate()
        return self._verdict(any(word in sentence for word in self._flagged))

    def _verdict(self, flagged: bool) -> Verdict:
        return Verdict(flagged, "harm", "Not that.") if flagged else Verdict(flagged=False)
