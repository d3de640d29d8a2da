"""More people than the engines can answer, in virtual time: the real store, line and rules, before
engines that are slots and nothing else. What everybody was told is noted beside what came true."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from tertulia.backends.memory import MemoryBackend
from tertulia.backends.memory.promises import MemoryPromises
from tertulia.core.types import (
    Admitted,
    Finish,
    Lane,
    Limits,
    ModelState,
    NewTurn,
    Outcome,
    Sampling,
    Status,
    Turn,
    Usage,
)
from tertulia.core.waiting import claimable
from tertulia.gateway.line import LineWatch
from tests.sim.aside import PriorityEngine
from tests.sim.virtual import VirtualClock, VirtualLoop

_REPLY_S = 8.0
# How unlike replies are: a gamma distribution of this shape spreads by seven tenths of its mean.
_SHAPE = 2.0
_PROMPT, _ANSWER = 400, 1_000
_LEASE_S = 1_000.0  # nobody dies here
_NETWORK_S = 0.3


@dataclass(slots=True)
class Person:
    """One who asked: `guess_s` is what the line thought when he joined it, `waited_s` what it was.
    `tries` counts how often he had to ask, the last time at `came_at`; `waited_s` None: he was
    never let in."""

    owner: str
    lane: Lane
    asked_at: float
    tries: int = 0
    came_at: float = 0.0
    guess_s: float = 0.0
    waited_s: float | None = None


@dataclass(slots=True)
class Slots:
    """Engines as the line and a worker see them. What has begun ends, also when slots go away.
    `puts_aside`: they know priorities."""

    now: Callable[[], float]
    slots_at: Callable[[float], int]
    puts_aside: bool = False
    running: int = 0

    def models(self) -> Sequence[ModelState]:
        n_slots = self.slots_at(self.now())
        room = max(0, n_slots - self.running)
        ranked = n_slots if self.puts_aside else 0
        return [ModelState("small", "lab/small", "ready", room, slots=n_slots, ranked_slots=ranked)]


@dataclass
class Crowd:
    """A run. `per_s_at` says how many of a lane ask a second, `limit_s` how long they may wait.
    Engines that put turns aside keep the slots that they begin with."""

    seed: int
    slots_at: Callable[[float], int]
    per_s_at: dict[Lane, Callable[[float], float]]
    limit_s: dict[Lane, float]
    puts_aside: bool = False
    people: list[Person] = field(default_factory=list)

    def run(self, seconds: float) -> list[Person]:
        """All who asked within this time, once each of them has begun or given up."""
        loop = VirtualLoop(max_steps=5_000_000, max_time_s=10 * seconds)
        try:
            loop.run_until_complete(self._run(loop, seconds))
        finally:
            loop.close()
        return self.people

    async def _run(self, loop: VirtualLoop, seconds: float) -> None:
        self._rng = random.Random(self.seed)
        self._clock = VirtualClock(loop)
        self._store = MemoryBackend(self._clock)
        self._engines = Slots(loop.time, self.slots_at, self.puts_aside)
        self._priorities = PriorityEngine(loop.time, self.slots_at(0.0))
        self._answers: list[asyncio.Task[None]] = []
        promises = MemoryPromises(self._clock)
        self._line = LineWatch(self._store.line, promises, cast("Any", self._engines), self._clock)
        self._news = asyncio.Event()
        self._begun: dict[str, asyncio.Future[float]] = {}
        self._loop = loop
        async with asyncio.TaskGroup() as tasks:
            always = [
                tasks.create_task(self._line.run()),
                tasks.create_task(self._work(tasks)),
                tasks.create_task(self._priorities.run()),
            ]
            async with asyncio.TaskGroup() as people:
                for lane in self.per_s_at:
                    people.create_task(self._come(lane, seconds, people))
            for one in [*always, *self._answers]:
                one.cancel()

    async def _come(self, lane: Lane, seconds: float, people: asyncio.TaskGroup) -> None:
        n = 0
        while self._loop.time() < seconds:
            await asyncio.sleep(self._rng.expovariate(self.per_s_at[lane](self._loop.time())))
            n += 1
            person = Person(f"{lane.name}-{n}", lane, self._loop.time())
            self.people.append(person)
            people.create_task(self._ask(person))

    async def _ask(self, person: Person) -> None:
        """Asks, comes back once when he is told to, and then gives up."""
        while person.tries < 2:
            person.tries += 1
            person.came_at = self._loop.time()
            told = await self._line.refusal(person.owner, person.lane, self.limit_s[person.lane])
            if told is None:
                await self._join(person)
                return
            await asyncio.sleep(math.ceil(told) + self._rng.uniform(0, _NETWORK_S))

    async def _join(self, person: Person) -> None:
        person.guess_s = self._line.newcomer_wait_s(person.lane)
        asked_at = self._loop.time()
        with self._line.entering(person.lane):
            answer = await self._store.turns.admit(_turn(person), Limits((), 2, person.lane))
        assert isinstance(answer, Admitted), answer
        self._line.joined(person.lane)
        begun = self._begun[person.owner] = self._loop.create_future()
        self._news.set()
        person.waited_s = await begun - asked_at

    async def _work(self, tasks: asyncio.TaskGroup) -> None:
        engines = self._engines
        while True:
            may = claimable(engines.models(), n_held=engines.running, n_most=100_000)
            turn = await self._store.queue.claim(lease_s=_LEASE_S, may=may) if may else None
            if turn is None:
                self._news.clear()
                await self._news.wait()
                continue
            engines.running += 1
            self._begun.pop(turn.owner).set_result(self._loop.time())
            self._answers.append(tasks.create_task(self._answer(turn)))

    async def _answer(self, turn: Turn) -> None:
        length = self._rng.gammavariate(_SHAPE, 1 / _SHAPE)
        if self.puts_aside:
            await self._priorities.compute(turn.lane, _REPLY_S * length)
        else:
            await asyncio.sleep(_REPLY_S * length)
        said = min(_ANSWER, int(_ANSWER * length / 3))
        outcome = Outcome(
            status=Status.COMPLETED,
            attempt=1,
            finish=Finish.STOP,
            text="",
            usage=Usage(_PROMPT, 0, said),
            last_event_id=3,
        )
        assert await self._store.turns.finish(turn.held, outcome)
        self._engines.running -= 1
        self._news.set()


def errors(people: Sequence[Person], *, shortest_s: float) -> list[float]:
    """How wrong the guesses were, in parts of the waits that were this long at least; in order."""
    return sorted(
        abs(person.guess_s - person.waited_s) / person.waited_s
        for person in people
        if person.waited_s is not None and person.waited_s >= shortest_s
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that this share of all is not above."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _turn(person: Person) -> NewTurn:
    return NewTurn(
        owner=person.owner,
        key="k",
        body_sha="sha",
        kind="stateless",
        reply_id=f"m_{person.owner}",
        plan=person.lane.name.lower(),
        requested="auto",
        answer_tokens=_ANSWER,
        prompt_tokens=_PROMPT,
        sampling=Sampling(),
    )
