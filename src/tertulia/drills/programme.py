"""The list of drills, and how one is run: a fresh fleet, one thing broken, a verdict."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tertulia.config import Settings
from tertulia.drills import losing_replicas, losing_roles, losing_stores
from tertulia.drills.fleet import FleetFailed, ReplicaTable, a_fleet, a_folder, small_engine
from tertulia.drills.servers import ServerFailed, ServerMissing
from tertulia.drills.stage import Inconclusive, Promise, Stage, new_stage
from tertulia.replica.catalogue import model_named
from tertulia.replica.shelf import is_installed

# The start of a fleet takes up to a minute on a small machine, a drill two or three.
_BOUND_S: Final = 300.0
# A reply may be over before anything broke: the small model is not long-winded every time.
_TRIES: Final = 3
_ANSWER_TOKENS: Final = 400

PASSED, FAILED, CANT_RUN = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Drill:
    """One row of the failure table: what it shows, and how many engines it takes."""

    play: Callable[[Stage], Awaitable[list[Promise]]]
    engines: int = 2
    is_endless: bool = False
    answer_tokens: int = _ANSWER_TOKENS

    @property
    def sentence(self) -> str:
        """What happens in it."""
        return (self.play.__doc__ or "").strip().splitlines()[0]


DRILLS: Final[dict[str, Drill]] = {
    "model-server": Drill(losing_replicas.model_server),
    "caches": Drill(losing_replicas.caches),
    "gateway": Drill(losing_roles.gateway),
    "worker": Drill(losing_roles.worker),
    "all-at-once": Drill(losing_roles.all_at_once),
    "store": Drill(losing_stores.store),
    "counters": Drill(losing_stores.counters),
    "region": Drill(losing_replicas.region, engines=4),
    "runaway": Drill(
        losing_replicas.runaway,
        engines=1,
        is_endless=True,
        answer_tokens=losing_replicas.RUNAWAY_TOKENS,
    ),
    "deploy": Drill(losing_roles.deploy, answer_tokens=200),
}


async def run(name: str, settings: Settings, say: Callable[[str], None]) -> int:
    """Runs one drill; 0 when all was kept, 1 when not, 2 when it could not be run."""
    drill = DRILLS[name]
    if not is_installed(model_named("small"), settings.models_folder):
        say("The drills ask the small real model: `tertulia models pull small` (98 MB).")
        return CANT_RUN
    try:
        with a_folder(f"drill-{name}") as folder:
            return await _bounded(drill, folder, settings, say)
    except ServerMissing as missing:
        say(f"A server is missing: {missing}.")
    except (ServerFailed, FleetFailed) as failed:
        say(f"The fleet did not start: {failed}")
    return CANT_RUN


async def _bounded(
    drill: Drill, folder: Path, settings: Settings, say: Callable[[str], None]
) -> int:
    try:
        async with asyncio.timeout(_BOUND_S):
            return await _run(drill, folder, settings, say)
    except TimeoutError:
        say(f"FAIL: the drill was not over after {_BOUND_S:.0f} s")
    except ExceptionGroup as group:
        failed = group.subgroup((FleetFailed, Inconclusive))
        if failed is None:
            raise
        say(f"FAIL: {failed.exceptions[0]}")
    return FAILED


async def _run(drill: Drill, folder: Path, settings: Settings, say: Callable[[str], None]) -> int:
    say(drill.sentence)
    engines = _engines(drill, settings)
    toml = _plan(drill.answer_tokens)
    async with a_fleet(folder, engines, toml=toml) as fleet:
        stage = await new_stage(fleet, say)
        stage.note(
            f"up: 2 gateways, 2 workers, {len(engines)} engines of one thread, Postgres, Valkey"
        )
        for left in reversed(range(_TRIES)):
            try:
                return _verdict(await drill.play(stage), say)
            except Inconclusive as nothing:
                stage.note(f"nothing was shown: {nothing}")
            if left:
                await _mend(stage)
    say("FAIL: it could not be shown")
    return FAILED


async def _mend(stage: Stage) -> None:
    """Everything is up again before the next try."""
    for role in stage.fleet.roles:
        await role.start()
    await stage.fleet.ready()


def _engines(drill: Drill, settings: Settings) -> list[ReplicaTable]:
    if drill.is_endless:
        return [losing_replicas.endless(settings)]
    folder = settings.models_folder.absolute()
    return [small_engine(folder, model_named("small").served_id)] * drill.engines


def _plan(answer_tokens: int) -> str:
    return f"""\
[plans.plus]
answer_tokens = {answer_tokens}
budgets = []
replies_running = 20
"""


def _verdict(promises: list[Promise], say: Callable[[str], None]) -> int:
    width = max(len(promise.text) for promise in promises)
    say("")
    for promise in promises:
        say(f"{'kept' if promise.kept else 'BROKEN':<6}  {promise.text:<{width}}  {promise.seen}")
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load > 1.5 * cores:
        say(
            f"(The machine is busy, load {load:.1f} on {cores} cores: all takes longer than usual.)"
        )
    passed = all(promise.kept for promise in promises)
    say("PASS" if passed else "FAIL")
    return PASSED if passed else FAILED
