"""The planner in a thread and the simulator in a process of its own, for whoever asks the gateway.

A process: a simulation takes seconds of a processor that streams must not wait for, and can be
ended at any moment.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, TypeVar

from tertulia.planner.plan import Plan
from tertulia.planner.sheet import CantCompute
from tertulia.planner.showing import planned, shown
from tertulia.planner.trial import Policies, scenario_of
from tertulia.planner.wishes import Nonsense
from tertulia.ports_of_planning import (
    Busy,
    CantPlan,
    Conditions,
    PlanWish,
    Played,
    Progress,
    Scenario,
)

# Plans that wait for the one that is being computed, each some hundredths of a second: a page
# whose sliders are moved asks for a few, and gives up most of them.
_MOST_WAITING: Final = 8
# What a page plays takes seconds; on a machine that serves people, some more.
_LONGEST_S: Final = 60.0
# A line of what came of a simulation: some three hundred looks at it.
_LONGEST_LINE: Final = 1_000_000

Made = TypeVar("Made")


class ProcessPlanning:
    """Invariant: at most one plan is computed, and one simulation played, at any moment."""

    def __init__(self, longest_s: float = _LONGEST_S) -> None:
        self._longest_s = longest_s
        self._turn = asyncio.Lock()
        self._n_waiting = 0
        self._is_playing = False

    async def plan(self, wish: PlanWish) -> Mapping[str, Any] | CantPlan | Busy:
        """As a page shows it."""
        return await self._computed(wish, shown)

    async def scenario(self, wish: PlanWish, conditions: Conditions) -> Scenario | CantPlan | Busy:
        """What `play` takes, for a plan under these conditions."""
        if self._is_playing:
            return Busy()
        policies = Policies(conditions.ladder, conditions.paid_first, conditions.door)
        return await self._computed(
            wish, lambda plan: scenario_of(plan, load=conditions.load, policies=policies)
        )

    async def play(
        self, scenario: Scenario
    ) -> AsyncGenerator[Progress | Played | CantPlan | Busy, None]:
        """Plays it in a process of its own, which ends with this."""
        if self._is_playing:
            yield Busy()
            return
        self._is_playing = True
        try:
            async with _player(scenario) as process:
                until = asyncio.get_running_loop().time() + self._longest_s
                async with aclosing(_news(process, until)) as news:
                    async for one in news:
                        yield one
        finally:
            self._is_playing = False

    async def _computed(
        self, wish: PlanWish, make: Callable[[Plan], Made]
    ) -> Made | CantPlan | Busy:
        if self._n_waiting >= _MOST_WAITING:
            return Busy()
        self._n_waiting += 1
        try:
            async with self._turn:
                return await asyncio.to_thread(_made, wish, make)
        finally:
            self._n_waiting -= 1


def _made(wish: PlanWish, make: Callable[[Plan], Made]) -> Made | CantPlan:
    try:
        return make(planned(wish.values, wish.words))
    except (Nonsense, CantCompute) as error:
        return CantPlan(str(error))


@asynccontextmanager
async def _player(scenario: Scenario) -> AsyncGenerator[Process, None]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tertulia.simulator"),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        limit=_LONGEST_LINE,
    )
    try:
        assert process.stdin is not None
        process.stdin.write(json.dumps(scenario).encode())
        process.stdin.close()
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _news(
    process: Process, until: float
) -> AsyncGenerator[Progress | Played | CantPlan, None]:
    """What the player says, to its last word."""
    assert process.stdout is not None
    while True:
        try:
            async with asyncio.timeout_at(until):
                line = await process.stdout.readline()
        except TimeoutError:
            yield CantPlan("The simulation took too long and was ended: ask for less.")
            return
        told = json.loads(line) if line else {}
        if "share" in told:
            yield Progress(told["share"])
            continue
        if "told" in told:
            yield Played(told["told"])
        else:
            yield CantPlan(told.get("why", "The simulation ended without a word: try again."))
        return
