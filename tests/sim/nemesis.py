"""Breaks things by seed: kills, freezes, lost logs, outages, engines that stall or refuse.

It counts what it did; after `heal` nothing is broken any more.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.sim.engines import SimReplica
from tests.sim.fleet import Fleet, Place


@dataclass(frozen=True, slots=True)
class Intensity:
    """Mean seconds between faults, and how likely each kind is (weights)."""

    pause_s: float
    weights: dict[str, float]


_USUAL: Final = {
    "kill_worker": 5.0,
    "kill_gateway": 5.0,
    "kill_replica": 3.0,
    "kill_all": 0.15,
    "quit_worker": 0.7,
    "quit_gateway": 0.4,
    "freeze_worker": 2.0,
    "freeze_gateway": 1.0,
    "stall_replica": 1.0,
    "refuse_replica": 1.0,
    "lose_log": 1.5,
    "lose_logs": 0.3,
    "fail_over": 0.5,
    "store_outage": 0.5,
    "log_outage": 0.5,
}
NO_LOSSES: Final = _USUAL | {"lose_log": 0.0, "lose_logs": 0.0, "fail_over": 0.0}
FAIL_OVERS: Final = Intensity(0.2, _USUAL | {"freeze_worker": 4.0, "fail_over": 4.0})
# Several kinds of weather: what a storm never reaches, a drizzle may.
INTENSITIES: Final = (
    Intensity(0.10, _USUAL),
    Intensity(0.20, _USUAL),
    Intensity(0.12, NO_LOSSES),
    Intensity(0.15, _USUAL | {"lose_log": 6.0, "freeze_worker": 6.0}),
    Intensity(0.5, _USUAL | {"freeze_worker": 4.0, "lose_logs": 2.0}),
    FAIL_OVERS,
)


@dataclass(slots=True)
class Nemesis:
    """Runs as one task. `losses` counts lost logs by reply."""

    fleet: Fleet
    rng: random.Random
    intensity: Intensity
    counts: Counter[str] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)
    calm: bool = False

    async def run(self, until: float, tasks: asyncio.TaskGroup) -> None:
        """One fault after the other until `until`."""
        kinds = list(self.intensity.weights)
        weights = list(self.intensity.weights.values())
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / self.intensity.pause_s))
            if self.fleet.loop.time() >= until:
                return
            kind = self.rng.choices(kinds, weights)[0]
            getattr(self, f"_{kind}")(tasks)

    def heal(self) -> None:
        """Everything runs again and stays so."""
        self.calm = True
        for place in (*self.fleet.gateways, *self.fleet.workers):
            if not place.is_up:
                place.start()
            elif place.process is not None:
                place.process.thaw()
        for weather in self.fleet.weather.values():
            weather.down_until = -1.0
            weather.repeat_share = weather.stuck_share = 0.0
        self.fleet.engines.heal()

    @property
    def kills(self) -> int:
        return self.counts["kill"]

    def _kill_worker(self, tasks: asyncio.TaskGroup) -> None:
        self._kill(self.rng.choice(self.fleet.workers), tasks)

    def _kill_gateway(self, tasks: asyncio.TaskGroup) -> None:
        self._kill(self.rng.choice(self.fleet.gateways), tasks)

    def _kill(self, place: Place, tasks: asyncio.TaskGroup) -> None:
        if not place.is_up or place.process is None:
            return
        self.counts["kill"] += 1
        place.process.kill()
        tasks.create_task(self._start_later(place))

    async def _start_later(self, place: Place) -> None:
        await asyncio.sleep(self.rng.choice((0.01, 0.1, 0.3, 1.0)))
        if not place.is_up:
            place.start()

    def _quit_worker(self, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(self._quit(self.rng.choice(self.fleet.workers)))

    def _quit_gateway(self, tasks: asyncio.TaskGroup) -> None:
        gateway = self.rng.choice(self.fleet.gateways)
        if gateway.is_up:
            gateway.desk.streams.leaving = gateway.desk.streams.draining = True
        tasks.create_task(self._quit(gateway))

    async def _quit(self, place: Place) -> None:
        """A clean shutdown, as at an update: claims are given back."""
        process = place.process
        if process is None or not process.alive or process.frozen:
            return
        self.counts["quit"] += 1
        await process.quit()
        await self._start_later(place)

    def _kill_replica(self, tasks: asyncio.TaskGroup) -> None:
        replica = self.rng.choice(list(self.fleet.engines.replicas.values()))
        if replica.alive:
            self.counts["kill"] += 1
            replica.kill(self.fleet.loop.time())
            tasks.create_task(self._revive_later(replica))

    async def _revive_later(self, replica: SimReplica) -> None:
        await asyncio.sleep(self.rng.choice((0.1, 0.3, 1.0)))
        replica.alive = True

    def _kill_all(self, tasks: asyncio.TaskGroup) -> None:
        """The whole tree at once, as when the machine's power goes."""
        for place in (*self.fleet.gateways, *self.fleet.workers):
            self._kill(place, tasks)
        for replica in self.fleet.engines.replicas.values():
            if replica.alive:
                self.counts["kill"] += 1
                replica.kill(self.fleet.loop.time())
                tasks.create_task(self._revive_later(replica))

    def _freeze_worker(self, tasks: asyncio.TaskGroup) -> None:
        self._freeze(self.rng.choice(self.fleet.workers), tasks)

    def _freeze_gateway(self, tasks: asyncio.TaskGroup) -> None:
        self._freeze(self.rng.choice(self.fleet.gateways), tasks)

    def _freeze(self, place: Place, tasks: asyncio.TaskGroup) -> None:
        process = place.process
        if process is None or not process.alive or process.frozen:
            return
        self.counts["freeze"] += 1
        process.freeze()

        async def thaw_later() -> None:
            # Often just longer than a lease: the old owner wakes up beside the new one.
            await asyncio.sleep(self.rng.choice((0.2, 1.0, 2.1, 2.5, 3.5, 5.0)))
            process.thaw()

        tasks.create_task(thaw_later())

    def _stall_replica(self, _: asyncio.TaskGroup) -> None:
        replica = self.rng.choice(list(self.fleet.engines.replicas.values()))
        self.counts["stall"] += 1
        replica.stalled_until = self.fleet.loop.time() + self.rng.choice((0.3, 1.0, 2.5, 4.0))

    def _refuse_replica(self, _: asyncio.TaskGroup) -> None:
        replica = self.rng.choice(list(self.fleet.engines.replicas.values()))
        self.counts["refusal"] += 1
        replica.refusing_until = self.fleet.loop.time() + self.rng.choice((0.2, 1.0, 2.0))

    def _lose_log(self, _: asyncio.TaskGroup) -> None:
        names = self.fleet.log_names()
        if names:
            # The newest are the ones in use.
            self._lose(self.rng.choice(names[-8:]))

    def _lose_logs(self, _: asyncio.TaskGroup) -> None:
        for name in self.fleet.log_names():
            self._lose(name)

    def _lose(self, reply_id: str) -> None:
        self.counts["loss"] += 1
        self.losses[reply_id] += 1
        self.fleet.lose_log(reply_id)

    def _fail_over(self, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(self._fail_over_to(self.fleet.shared.log.copy()))

    async def _fail_over_to(self, copied: Mapping[str, object]) -> None:
        """The logs' system dies, and a replica that was so far behind takes its place."""
        await asyncio.sleep(self.rng.choice((0.0, 0.02, 0.1, 0.5)))
        if self.calm:
            return
        self.counts["loss"] += 1
        self.losses.update({*self.fleet.log_names(), *copied})
        self.fleet.fail_over(copied)

    def _store_outage(self, _: asyncio.TaskGroup) -> None:
        self._outage("store")

    def _log_outage(self, _: asyncio.TaskGroup) -> None:
        self._outage("log")

    def _outage(self, name: str) -> None:
        self.counts["outage"] += 1
        until = self.fleet.loop.time() + self.rng.choice((0.1, 0.5, 1.0, 2.5))
        self.fleet.weather[name].down_until = until
