"""F1 to F7 of the fault plan, one after the other, each deed at a moment drawn from the seed.

It heals what it breaks before it goes on, and writes down every deed with its times.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from tests.chaos.disk import SmallDisk
from tests.chaos.evidence import Incident, Phase
from tests.chaos.fleet import Fleet, post_faults
from tests.chaos.orders import Line
from tests.chaos.stores import StoreHands

Deed = Callable[[], Coroutine[Any, Any, None]]

# So long has one answered that it is ready before it is a victim like any other.
_SETTLED_S: Final = 0.4
_PATIENCE_S: Final = 4.0
_HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Dose:
    """How often each deed is done, and how long the baseline before them lasts.

    After a phase the fleet has `breath_s` before the next, so that its pauses are its own.
    """

    baseline_s: float = 12.0
    breath_s: float = 2.0
    gateway_kills: int = 100
    gateway_every_s: float = 0.5
    engine_kills: int = 96
    engine_freezes: int = 20
    engine_slow: int = 5
    engine_deaf: int = 5
    engine_breaks: int = 8
    worker_kills: int = 36
    # A reply's next owner should come to write before it is killed too: a lease lies in between.
    worker_every_s: float = 1.5
    worker_freezes: int = 6
    lost_with_owner: int = 3
    valkey_kills: int = 8
    valkey_freezes: int = 2
    valkey_flushes: int = 8
    valkey_promotions: int = 3
    valkey_cuts: int = 20
    postgres_kills: int = 5
    postgres_freezes: int = 2
    partitions: int = 10
    lost_answers: int = 6
    slow_database_s: float = 0.0  # for gateways, all the time
    breaks: int = 12
    full_disks: int = 2
    clock_jumps: int = 2
    quiet_auths: int = 1


@dataclass(slots=True)
class Nemesis:
    """Does the deeds of a run. `incidents` and `phases` are its confession."""

    fleet: Fleet
    stores: StoreHands
    people: Line
    chance: random.Random
    dose: Dose
    disk: SmallDisk | None
    incidents: list[Incident] = field(default_factory=list)
    phases: list[Phase] = field(default_factory=list)
    asked_while_quiet: list[int] = field(default_factory=list)
    _dying: set[str] = field(default_factory=set)  # engines that are killed just now
    # Since when each of ours has been ready after its last start in a phase.
    _ready_at: dict[str, float] = field(default_factory=dict)

    async def run(self, only: frozenset[str]) -> None:
        """All phases in order, or those named."""
        plans: dict[str, Deed] = {
            "F1": self._gateways,
            "F2": self._engines,
            "F3": self._workers,
            "F4": self._valkey,
            "F5": self._postgres,
            "F6": self._network,
            "F7": self._disk_clock_and_auth,
        }
        if self.dose.slow_database_s:
            slow = self.fleet.ways("g", "postgres")
            await self.fleet.order_relays(slow, do="turn", delay_s=self.dose.slow_database_s)
        async with self._phase(""):
            await asyncio.sleep(self.dose.baseline_s)
        for fault, plan in plans.items():
            if only and fault not in only:
                continue
            async with self._phase(fault):
                await plan()
            await asyncio.sleep(self.dose.breath_s)

    @asynccontextmanager
    async def _phase(self, fault: str) -> AsyncGenerator[None, None]:
        t0 = time.monotonic()
        yield
        phase = Phase(fault, t0, time.monotonic())
        self.phases.append(phase)
        deeds = [i for i in self.incidents if i.fault == fault]
        print(f"{fault or 'peace'}: {len(deeds)} deeds in {phase.t1 - t0:.0f} s", flush=True)

    @asynccontextmanager
    async def _deed(
        self, fault: str, kind: str, victim: str, *, loses_logs: bool = False
    ) -> AsyncGenerator[None, None]:
        t0 = time.monotonic()
        try:
            yield
        finally:
            deed = Incident(fault, kind, victim, t0, time.monotonic(), loses_logs)
            self.incidents.append(deed)

    # --- F1 and F3: our own processes ------------------------------------------------------------

    async def _gateways(self) -> None:
        await self._kill_in_turn("F1", self.fleet.gateways, "gateway")

    async def _workers(self) -> None:
        await self._kill_in_turn("F3", self.fleet.workers, "worker")
        for _ in range(self.dose.worker_freezes):
            await asyncio.sleep(self.chance.uniform(0.1, 0.8))
            victim = self.chance.choice(self.fleet.workers)
            async with self._deed("F3", "freeze", victim):
                # Longer than a lease: it wakes up as an owner that was replaced.
                await self.fleet.nursery.freeze(victim, self.fleet.size.lease_s * 1.4)
        for _ in range(self.dose.lost_with_owner):
            await asyncio.sleep(self.chance.uniform(0.3, 1.0))
            await self._lose_logs_with_their_owners()

    async def _lose_logs_with_their_owners(self) -> None:
        """The one loss that readers notice: a log and its writer at once."""
        names = self.fleet.workers
        async with self._deed("F3", "kill", " ".join(names), loses_logs=True):
            await asyncio.gather(*(self.fleet.nursery.kill(name) for name in names))
            await self.stores.flush_valkey()
            await asyncio.gather(*(self.fleet.run(name) for name in names))
            await self.fleet.ready(names)

    async def _kill_in_turn(self, fault: str, names: list[str], kind: str) -> None:
        """Kills one after the other at random, mostly while another is up."""
        every_s = getattr(self.dose, f"{kind}_every_s")
        restarts: set[asyncio.Task[None]] = set()
        self._ready_at = dict.fromkeys(names, 0.0)
        for _ in range(getattr(self.dose, f"{kind}_kills")):
            await asyncio.sleep(self.chance.uniform(0.3, 1.7) * every_s)
            victim = await self._one_of_two(names)
            self._ready_at.pop(victim, None)
            async with self._deed(fault, "kill", victim):
                await self.fleet.nursery.kill(victim)
            restarts.add(asyncio.ensure_future(self._restart(victim)))
        await asyncio.gather(*restarts)
        await self.fleet.ready(names)

    async def _one_of_two(self, names: list[str]) -> str:
        """A victim, while there is another that has served for a moment: so that the pace of the
        kills follows the pace of the restarts. After a while whoever is there."""
        until = time.monotonic() + _PATIENCE_S
        while True:
            now, children = time.monotonic(), self.fleet.nursery.children
            up = [name for name in names if name in children]
            settled = [name for name in up if now - self._ready_at.get(name, now) > _SETTLED_S]
            if len(settled) > 1 or (up and now > until):
                return self.chance.choice(settled or up)
            await asyncio.sleep(0.02)

    async def _restart(self, name: str) -> None:
        await asyncio.sleep(self.chance.uniform(0.0, 0.1))
        await self.fleet.run(name)
        await self.fleet.ready([name])
        self._ready_at[name] = time.monotonic()

    # --- F2: engines -----------------------------------------------------------------------------

    async def _engines(self) -> None:
        dose = self.dose
        deeds: list[Deed] = [self._kill_engine] * dose.engine_kills
        deeds += [self._freeze_engine] * dose.engine_freezes
        deeds += [lambda: self._spoil("slow", after=5, for_s=0.15)] * dose.engine_slow
        deeds += [lambda: self._spoil("deaf", after=3)] * dose.engine_deaf
        deeds += [self._break_engine] * dose.engine_breaks
        await self._shuffled(deeds, every_s=0.4)

    async def _shuffled(self, deeds: list[Deed], *, every_s: float) -> None:
        """All deeds in random order; each may still last when the next begins."""
        self.chance.shuffle(deeds)
        async with asyncio.TaskGroup() as running:
            for deed in deeds:
                running.create_task(deed())
                await asyncio.sleep(self.chance.uniform(0.3, 1.7) * every_s)

    def _an_engine(self) -> str | None:
        up = [
            name
            for name in self.fleet.engines
            if name in self.fleet.nursery.children and name not in self._dying
        ]
        return self.chance.choice(up) if len(up) > 1 else None

    async def _kill_engine(self) -> None:
        name = self._an_engine()
        while name is None:
            await asyncio.sleep(0.05)
            name = self._an_engine()
        self._dying.add(name)
        async with self._deed("F2", "kill", name):
            await self.fleet.nursery.kill(name)
            await asyncio.sleep(self.chance.uniform(0.1, 1.0))
            await self.fleet.run(name)
        self._dying.remove(name)

    async def _freeze_engine(self) -> None:
        name = self._an_engine()
        if name is not None:
            async with self._deed("F2", "freeze", name):
                await self.fleet.nursery.freeze(name, self.chance.uniform(0.5, 5.0))

    async def _spoil(self, do: str, **how: Any) -> None:
        """The next generation of one engine goes wrong."""
        name = self._an_engine()
        if name is not None:
            async with self._deed("F2", do, name):
                await post_faults(self.fleet.ports[name], [{"do": do, **how}])

    async def _break_engine(self) -> None:
        do = self.chance.choice(("reset", "cut", "end", "stall", "error", "refuse"))
        await self._spoil(do, after=self.chance.randint(1, 60))

    # --- F4 and F5: the stores -------------------------------------------------------------------

    async def _valkey(self) -> None:
        dose = self.dose
        deeds: list[Deed] = [self._kill_valkey] * dose.valkey_kills
        deeds += [self._freeze_valkey] * dose.valkey_freezes
        deeds += [self._flush_valkey] * dose.valkey_flushes
        deeds += [self._promote_valkey] * dose.valkey_promotions
        deeds += [self._cut_valkey] * dose.valkey_cuts
        await self._one_by_one(deeds, every_s=0.5)

    async def _one_by_one(self, deeds: list[Deed], *, every_s: float) -> None:
        self.chance.shuffle(deeds)
        for deed in deeds:
            await asyncio.sleep(self.chance.uniform(0.3, 1.7) * every_s)
            await deed()

    async def _kill_valkey(self) -> None:
        async with self._deed("F4", "kill", "valkey", loses_logs=True):
            await self.stores.kill_valkey(self.chance.uniform(0.0, 0.5))

    async def _freeze_valkey(self) -> None:
        async with self._deed("F4", "freeze", "valkey"):
            await self.stores.freeze_valkey(3.0)

    async def _flush_valkey(self) -> None:
        async with self._deed("F4", "flush", "valkey", loses_logs=True):
            await self.stores.flush_valkey()

    async def _promote_valkey(self) -> None:
        is_hard = self.chance.random() < 0.6
        kind = "promote" if is_hard else "switch"
        async with self._deed("F4", kind, "valkey", loses_logs=True):
            await self.stores.promote_valkey(kill=is_hard)

    async def _cut_valkey(self) -> None:
        async with self._deed("F4", "client kill", "valkey"):
            await self.stores.cut_valkey()

    async def _postgres(self) -> None:
        deeds: list[Deed] = [self._kill_postgres] * self.dose.postgres_kills
        deeds += [self._freeze_postgres] * self.dose.postgres_freezes
        await self._one_by_one(deeds, every_s=2.0)

    async def _kill_postgres(self) -> None:
        async with self._deed("F5", "kill", "postgres"):
            await self.stores.kill_postgres()

    async def _freeze_postgres(self) -> None:
        async with self._deed("F5", "freeze", "postgres"):
            await self.stores.freeze_postgres(2.0)

    # --- F6: the network -------------------------------------------------------------------------

    async def _network(self) -> None:
        deeds: list[Deed] = [self._partition] * self.dose.partitions
        deeds += [self._break_ways] * self.dose.breaks
        deeds += [self._lose_answers] * self.dose.lost_answers
        await self._shuffled(deeds, every_s=1.0)
        await self.fleet.order_relays(list(self.fleet.relays), do="turn")

    def _some_ways(self) -> list[str]:
        """All ways of one process to one kind of others: where networks break."""
        fleet = self.fleet
        role = self.chance.choice([*fleet.gateways, *fleet.workers])
        others = ["valkey", "postgres", "r"]
        pairs = [(role, other) for other in others]
        pairs += [("people", name) for name in fleet.gateways]
        one, other = self.chance.choice(pairs)
        return fleet.ways(one, other)

    async def _partition(self) -> None:
        ways = self._some_ways()
        held = self.chance.choice((["up", "down"], ["up", "down"], ["up"], ["down"]))
        async with self._deed("F6", "partition", " ".join(ways)):
            await self.fleet.order_relays(ways, do="turn", held=held)
            await asyncio.sleep(self.chance.uniform(0.5, 4.0))
            await self.fleet.order_relays(ways, do="turn")

    async def _lose_answers(self) -> None:
        """What was asked is done, but whoever asked never hears of it, and asks again."""
        fleet = self.fleet
        role = self.chance.choice([*fleet.gateways, *fleet.workers, *fleet.workers])
        ways = fleet.ways(role, self.chance.choice(("valkey", "valkey", "postgres")))
        async with self._deed("F6", "answers lost", " ".join(ways)):
            await fleet.order_relays(ways, do="turn", held=["down"])
            await asyncio.sleep(self.chance.uniform(0.2, 0.5))
            await fleet.order_relays(ways, do="reset")
            await fleet.order_relays(ways, do="turn")

    async def _break_ways(self) -> None:
        ways = self._some_ways()
        orders: list[dict[str, Any]] = [
            {"do": "reset"},
            {"do": "forget"},
            {"do": "cut", "where": "character"},
            {"do": "cut", "where": "middle"},
            {"do": "turn", "trickle": 7},
            {"do": "turn", "delay_s": 0.2},
            {"do": "turn", "refuses": True},
        ]
        order = self.chance.choice(orders)
        kind = next(
            (name for name in ("where", "trickle", "delay_s", "refuses") if name in order), ""
        )
        async with self._deed(
            "F6", f"{order['do']} {order.get('where', kind)}".strip(), " ".join(ways)
        ):
            await self.fleet.order_relays(ways, **order)
            if order["do"] == "turn":
                await asyncio.sleep(self.chance.uniform(0.5, 3.0))
                await self.fleet.order_relays(ways, do="turn")

    # --- F7: disk, clock, and signing in without Valkey ------------------------------------------

    async def _disk_clock_and_auth(self) -> None:
        for _ in range(self.dose.clock_jumps):
            await self._jump()
        for _ in range(self.dose.quiet_auths):
            await self._ask_while_quiet()
        for _ in range(self.dose.full_disks):
            await self._fill_disk()

    async def _jump(self) -> None:
        """One gateway comes back with a clock that is an hour off, and later with the right one."""
        name = self.chance.choice(self.fleet.gateways)
        shift_s = self.chance.choice((-_HOUR_S, _HOUR_S))
        for shift, kind in ((shift_s, "kill"), (0.0, "kill")):
            async with self._deed("F7", kind, name):
                await self.fleet.nursery.kill(name)
                await self.fleet.run(name, shift_s=shift)
                await self.fleet.ready([name])
            if shift:
                async with self._deed("F7", f"clock {shift:+.0f} s", name):
                    await asyncio.sleep(3.0)

    async def _ask_while_quiet(self) -> None:
        """While Valkey answers nothing, everybody can still say who they are."""
        async with self._deed("F7", "freeze", "valkey"):
            frozen = asyncio.ensure_future(self.stores.freeze_valkey(3.0))
            with suppress(TimeoutError):
                async with asyncio.timeout(2.5):
                    while True:
                        self.asked_while_quiet.append(await self.people.order(do="me"))
                        await asyncio.sleep(0.1)
            await frozen

    async def _fill_disk(self) -> None:
        if self.disk is None:
            return
        async with self._deed("F7", "disk full", "postgres"):
            with self.disk.full():
                await asyncio.sleep(3.0)
