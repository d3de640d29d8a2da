"""One run by one seed: build a fleet, break it while people use it, heal it, check everything.

The same seed gives the same run, event for event.
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from tertulia.core.types import User
from tests.sim.checker import Checker
from tests.sim.clients import Client
from tests.sim.fleet import Fleet, climate
from tests.sim.histories import Asked, History
from tests.sim.nemesis import INTENSITIES, Intensity, Nemesis
from tests.sim.process import describe
from tests.sim.virtual import Deadlock, OutOfBounds, Spinning, VirtualLoop
from tests.sim.witness import Witness

MAX_STEPS: Final = 3_000_000
# Virtual seconds after the heal within which every turn must have ended.
REST_S: Final = 25.0
_KEPT_VIOLATIONS: Final = 12


@dataclass(slots=True)
class Result:
    """What a run did and what was wrong with it."""

    seed: int
    kills: int = 0
    freezes: int = 0
    losses: int = 0
    outages: int = 0
    turns: int = 0
    tokens: int = 0
    # What the ledger says of runs that ended, and what the replicas' logs say of them.
    settled_tokens: int = 0
    accepted_tokens: int = 0
    events: int = 0
    connections: int = 0
    steps: int = 0
    virtual_s: float = 0.0
    rest_s: float = 0.0
    ends: dict[str, int] = field(default_factory=dict)
    reached: Counter[str] = field(default_factory=Counter)
    digest: str = ""
    violations: list[str] = field(default_factory=list)

    def line(self) -> str:
        """The run on one line."""
        ends = " ".join(f"{name} {count}" for name, count in sorted(self.ends.items()))
        return (
            f"seed {self.seed}: {self.kills} kills, {self.freezes} freezes, {self.losses} losses, "
            f"{self.outages} outages; {self.turns} turns ({ends}), {self.tokens} tokens, "
            f"{self.events} events on {self.connections} connections; {self.virtual_s:.0f}s, at "
            f"rest after {self.rest_s:.1f}s, {self.steps} steps, digest {self.digest}; "
            f"{len(self.violations)} violations"
        )


def run_seed(
    seed: int, *, chaos_s: float = 30.0, n_clients: int = 7, intensity: Intensity | None = None
) -> Result:
    """One whole run. It ends early at the first violation seen while running."""
    rng = random.Random(seed)
    world = World(seed, rng, chaos_s, n_clients, intensity or rng.choice(INTENSITIES))
    return world.run()


class World:
    """A fleet, its people and its nemesis on one loop."""

    def __init__(
        self, seed: int, rng: random.Random, chaos_s: float, n_clients: int, intensity: Intensity
    ) -> None:
        self._result = Result(seed)
        self._chaos_s = chaos_s
        self._loop = VirtualLoop(max_steps=MAX_STEPS, max_time_s=chaos_s + 400.0)
        self._main: asyncio.Task[None] | None = None
        self._checking = False
        self._history = History(self.report)
        the_climate = climate(rng)
        self._witness = Witness(self.report, the_climate)
        fleet_rng = random.Random(rng.random())
        self._fleet = Fleet(self._loop, fleet_rng, self.report, self._witness.watch, the_climate)
        self._witness.store = self._fleet.shared.store
        self._nemesis = Nemesis(self._fleet, random.Random(rng.random()), intensity)
        self._clients = [
            Client(self._fleet, self._history, user, random.Random(rng.random()))
            for user in _users(n_clients)
        ]

    def run(self) -> Result:
        """Runs to the end, or to the first violation."""
        gc_was_on = gc.isenabled()
        gc.disable()  # a collection at a moment of its own would end generators out of order
        asyncio.set_event_loop(None)
        self._loop.set_exception_handler(self._unhandled)
        try:
            with _errors_to(self.report):
                self._run_loop()
        finally:
            self._loop.close()
            if gc_was_on:
                gc.enable()
                gc.collect()
        self._count()
        return self._result

    def report(self, check: str, text: str) -> None:
        """A violation; while the world still runs, it ends it."""
        if len(self._result.violations) < _KEPT_VIOLATIONS:
            self._result.violations.append(f"{check}: {text} [{self._loop.time():.3f}s]")
        if self._main is not None and not self._checking:
            self._main.cancel()

    def _run_loop(self) -> None:
        self._main = self._loop.create_task(self._live(), name="main")
        try:
            self._loop.run_until_complete(self._main)
        except asyncio.CancelledError:
            assert self._result.violations
        except (Deadlock, Spinning, OutOfBounds) as error:
            self._result.violations.append(f"loop: {describe(error)}")
        except Exception as error:  # noqa: BLE001 - whatever broke, its seed is the report
            self._result.violations.append(f"crash: {describe(error)}")
        if self._result.violations:
            self._bury()

    async def _live(self) -> None:
        fleet, until = self._fleet, self._chaos_s
        for place in (*fleet.gateways, *fleet.workers):
            place.start()
        async with asyncio.TaskGroup() as tasks:
            people = [
                tasks.create_task(client.run(until), name=f"client{i}")
                for i, client in enumerate(self._clients)
            ]
            await self._nemesis.run(until, tasks)
            self._nemesis.heal()
            await self._rest()
            await asyncio.wait(people)
            self._look_once_more(tasks)
        self._checking = True
        await self._shut_down()
        checker = Checker(fleet, self._history, self._witness, self._nemesis)
        checker.check()
        self._result.accepted_tokens = checker.accepted_tokens

    async def _rest(self) -> None:
        """C12: every turn ends soon after the last fault."""
        healed_at = self._loop.time()
        quiet_since = healed_at
        while True:
            await asyncio.sleep(0.25)
            now = self._loop.time()
            if self._fleet.shared.store.open:
                quiet_since = now
            elif now - quiet_since > 1.0:
                self._result.rest_s = quiet_since - healed_at
                return
            oldest = next(iter(self._fleet.shared.store.open), None)
            if oldest is not None and now - healed_at > REST_S:
                turn = self._fleet.shared.store.turns[oldest]
                self.report("C12", f"{oldest} did not end: {turn.status}, epoch {turn.epoch}")
                return

    def _look_once_more(self, tasks: asyncio.TaskGroup) -> None:
        """Every reply is read once more from the start, and every key posted again."""
        for asked in list(self._history.asked.values()):
            if asked.deleted:
                continue
            for reply_id in asked.reply_ids:
                tasks.create_task(self._look(asked, reply_id))

    async def _look(self, asked: Asked, reply_id: str) -> None:
        await asyncio.sleep(self._fleet.rng.uniform(0, 2))
        client = next(c for c in self._clients if c.user.id == asked.owner)
        await client.follow(asked, reply_id, "last")
        await client.post_again(asked)

    async def _shut_down(self) -> None:
        places = (*self._fleet.gateways, *self._fleet.workers)
        await asyncio.sleep(2.0)
        for place in places:
            assert place.process is not None
            await place.process.quit()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            self.report("C11", f"a task is left: {task.get_name()}")

    def _bury(self) -> None:
        """After a violation nothing need end well; it must only end."""
        self._main = None
        self._checking = True
        for place in (*self._fleet.gateways, *self._fleet.workers):
            if place.process is not None and place.process.alive:
                place.process.kill()
        self._loop.forget_bounds()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._loop.run_until_complete(asyncio.wait(left, timeout=30))

    def _unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        told = describe(error) if error is not None else context["message"]
        if not self._checking:
            self.report("crash", told)

    def _count(self) -> None:
        result, counts = self._result, self._nemesis.counts
        result.kills = counts["kill"]
        result.freezes = counts["freeze"] + counts["stall"]
        result.losses = counts["loss"]
        result.outages = counts["outage"] + counts["refusal"]
        result.turns = sum(map(len, self._witness.admitted.values()))
        result.tokens = self._witness.n_tokens
        finished = {(finish.reply_id, finish.epoch) for finish in self._witness.finishes}
        result.settled_tokens = sum(
            settled.settlement.usage.output
            for settled in self._fleet.shared.store.settlements.values()
            if (settled.reply_id, settled.epoch) in finished
        )
        result.events = self._history.n_events
        result.connections = self._history.n_connections
        result.steps = self._loop.steps
        result.virtual_s = self._loop.time()
        result.reached = self._witness.reached + Counter(
            {"a client is reset": self._history.n_resets}
        )
        result.digest = self._fleet.trace.value
        for turn in self._fleet.shared.store.turns.values():
            end = turn.finish or (turn.failure.code if turn.failure else turn.status)
            result.ends[end] = result.ends.get(end, 0) + 1


def _users(n: int) -> list[User]:
    """Two devices each for the first users; plans by turns."""
    more = [f"{plan}-{i}" for i in range(1, 9) for plan in ("free", "plus")]
    names = ["free-0", "plus-0", "free-0", "plus-0", *more]
    return [User(name, name, "user", name.partition("-")[0], None, 0.0) for name in names[:n]]


@contextmanager
def _errors_to(report: Any) -> Iterator[None]:
    """What the product logs as an error is a violation; the rest is silent."""

    def judge(_: Any, method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        if method in ("error", "exception", "critical"):
            error = event.get("exc_info")
            if error is True:
                error = sys.exc_info()[1]
            told = describe(error) if isinstance(error, BaseException) else ""
            report("crash", f"{event['event']} {event.get('reply', '')}: {told}")
        raise structlog.DropEvent

    old = structlog.get_config()
    structlog.configure(processors=[judge], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**old)
