"""`python -m tests.e2e.counters --seconds 60`: the store of counters is killed, and then falls
silent, under two gateways with people at both. Prints what they saw in each phase, and exits 1
unless first words are as quick as before, nobody holds more than the limit and the slices, paid
people are served, and the ledger has no drift.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from tertulia.core.slices import slice_of
from tertulia.drills.fleet import a_fleet, a_folder
from tertulia.drills.stage import Stage, new_stage
from tertulia.drills.valkey_server import ValkeyServer
from tests.e2e.fleets import SWIFT, fake

STREAMS = 8  # of a person at once, in this run
GATEWAYS = 2
MOST = STREAMS + GATEWAYS * slice_of(STREAMS)
PEOPLE = 4  # of each plan, beside the one who takes all that there is
RISE_S = 0.1  # how much later the first words may come while the store is away
PHASES = ("calm", "killed", "back", "silent", "back again")
# A lease that nobody gave back ends by then.
SETTLED_S = 16.0
PASSWORD = "a long enough password"
PATIENCE_S = 30.0  # a call that takes longer has failed, on a busy machine too
PLANS = "".join(
    f"""
[plans.{name}]
answer_tokens = {tokens}
replies_running = 100
open_streams = {STREAMS}
budgets = [{{name = "units_3h", unit = "units", limit = 100000000, refill_s = 10800}}]
"""
    # Long enough for a round of the greedy one to be over before the reply is.
    for name, tokens in (("free", 40), ("plus", 40), ("greedy", 400))
)


@dataclass
class Phase:
    """What people saw while the store of counters was in one state."""

    name: str
    first_words_s: list[float] = field(default_factory=list)
    served: dict[str, int] = field(default_factory=lambda: {"free": 0, "plus": 0})
    failed: dict[str, int] = field(default_factory=lambda: {"free": 0, "plus": 0})
    # How many streams one person had open at once, time after time.
    held: list[int] = field(default_factory=list)
    sliced: int = 0
    # Set when a round of the greedy one and a turn of somebody who pays are over.
    shown: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self) -> None:
        """After each of these."""
        if self.held and self.served["plus"]:
            self.shown.set()

    def wait_s(self, share: float) -> float:
        """So long that this share of all waits for first words was no longer."""
        waits = sorted(self.first_words_s)
        return waits[int(len(waits) * share)] if waits else 0.0

    def figures(self) -> dict[str, Any]:
        return {
            "phase": self.name,
            "served": self.served,
            "failed": self.failed,
            "first_words_p50_ms": round(1000 * self.wait_s(0.5)),
            "first_words_p95_ms": round(1000 * self.wait_s(0.95)),
            "most_streams_of_one": max(self.held, default=0),
            "decided_by_slices": self.sliced,
        }


@dataclass
class Run:
    """A fleet, its store of counters, and who uses it."""

    stage: Stage
    counters: ValkeyServer
    phase: Phase
    over: bool = False
    # Streams of the greedy one.
    open_now: int = 0
    open_most: int = 0

    def url(self, number: int) -> str:
        gateways = self.stage.fleet.gateways
        return gateways[number % len(gateways)].url


@asynccontextmanager
async def a_run() -> AsyncGenerator[Run, None]:
    """Everything is up, and nobody asks yet."""
    async with AsyncExitStack() as closing:
        folder = closing.enter_context(a_folder("counters"))
        counters = ValkeyServer(folder / "counters")
        await asyncio.to_thread(counters.start)
        closing.push_async_callback(asyncio.to_thread, counters.kill)
        environment = {
            **SWIFT,
            "TERTULIA_SERVER__REGISTRATION": "open",
            "TERTULIA_FLEET__COUNTERS": json.dumps([counters.url]),
        }
        fleet = await closing.enter_async_context(
            a_fleet(
                folder,
                [fake(folder)] * 2,
                gateways=GATEWAYS,
                workers=2,
                toml=PLANS,
                environment=environment,
            )
        )
        yield Run(await new_stage(fleet, print), counters, Phase("none"))


async def run(here: Run, seconds: float) -> list[Phase]:
    """Every phase for so long, and until it has something to tell, under the same load."""
    phases = [Phase(name) for name in PHASES]
    here.phase = phases[0]
    people = [
        (plan, await a_person(here, f"{plan}-{n}", plan, n))
        for plan in ("free", "plus")
        for n in range(PEOPLE)
    ]
    greedy = await a_person(here, "greedy", "greedy", 0)
    async with asyncio.TaskGroup() as tasks:
        for number, (plan, key) in enumerate(people):
            tasks.create_task(keeps_asking(here, number, plan, key))
        tasks.create_task(takes_all(here, greedy))
        for phase in phases:
            await turn_to(here, phase.name)
            here.phase = phase
            before = await sliced(here)
            await asyncio.sleep(seconds)
            async with asyncio.timeout(PATIENCE_S):
                await phase.shown.wait()
            phase.sliced = await sliced(here) - before
            print(json.dumps(phase.figures()), flush=True)
        here.over = True
    return phases


async def turn_to(here: Run, name: str) -> None:
    """Puts the store of counters into the state of a phase."""
    turns = {
        "killed": here.counters.kill,
        "back": here.counters.start,
        "silent": here.counters.freeze,  # takes connections and commands, and answers nothing
        "back again": here.counters.thaw,
    }
    if name in turns:
        await asyncio.to_thread(turns[name])


async def a_person(here: Run, name: str, plan: str, number: int) -> str:
    """A new account on a plan; its key."""
    url = here.url(number)
    async with httpx2.AsyncClient(trust_env=False, base_url=url, timeout=PATIENCE_S) as http:
        made = await http.post("/v1/auth/register", json={"name": name, "password": PASSWORD})
        made.raise_for_status()
        key = await http.post("/v1/api-keys", json={"name": "run"}, headers={"Origin": url})
        key.raise_for_status()
    user_id = made.json()["id"]
    moved = await here.stage.call("PATCH", f"/v1/admin/users/{user_id}", {"plan": plan})
    moved.raise_for_status()
    return str(key.json()["secret"])


async def keeps_asking(here: Run, number: int, plan: str, key: str) -> None:
    """One question after the other, each followed to its end."""
    headers = {"Authorization": f"Bearer {key}", "Accept": "text/event-stream"}
    url = here.url(number)
    async with httpx2.AsyncClient(
        trust_env=False, base_url=url, timeout=PATIENCE_S, headers=headers
    ) as http:
        asked = 0
        while not here.over:
            phase, asked = here.phase, asked + 1
            try:
                wait_s = await asks(http, f"{number}-{asked}")
            except (httpx2.HTTPError, LookupError) as error:
                phase.failed[plan] += 1
                here.stage.note(f"person {number} ({plan}): {error!r}")
                await asyncio.sleep(0.2)
                continue
            phase.served[plan] += 1
            phase.note()
            phase.first_words_s.append(wait_s)


async def asks(http: httpx2.AsyncClient, mark: str) -> float:
    """Asks in a new conversation; seconds to the first words. LookupError if it ends badly."""
    made = await http.post("/v1/conversations", json={})
    made.raise_for_status()
    place = f"/v1/conversations/{made.json()['id']}/messages"
    began, first_s, last = time.monotonic(), None, ""
    body, headers = {"content": f"Question {mark}"}, {"Idempotency-Key": f"ask-{mark}"}
    async with http.stream("POST", place, json=body, headers=headers) as answer:
        if answer.status_code != 200:
            raise LookupError(f"{answer.status_code} {(await answer.aread())[:200]!r}")
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                last = line
            if line == "event: delta" and first_s is None:
                first_s = time.monotonic() - began
    if first_s is None or last != "event: done":
        raise LookupError(f"the last event was {last}")
    return first_s


async def takes_all(here: Run, key: str) -> None:
    """Opens as many streams of a reply as it can get at all gateways, again and again."""
    headers = {"Authorization": f"Bearer {key}"}
    async with AsyncExitStack() as closing:
        https = [
            await closing.enter_async_context(
                httpx2.AsyncClient(
                    trust_env=False, base_url=here.url(n), timeout=PATIENCE_S, headers=headers
                )
            )
            for n in range(GATEWAYS)
        ]
        rounds = 0
        while not here.over:
            rounds += 1
            phase = here.phase
            made = await https[0].post("/v1/conversations", json={})
            place = f"/v1/conversations/{made.json()['id']}/messages"
            posted = await https[0].post(
                place,
                json={"content": f"Tell me all {rounds}"},
                headers={"Idempotency-Key": f"greedy-{rounds}"},
            )
            url = posted.json()["streamUrl"]
            here.open_most = 0
            await asyncio.gather(*(opens(here, https[n % GATEWAYS], url) for n in range(2 * MOST)))
            if phase is here.phase:  # a round over a border belongs to neither side
                phase.held.append(here.open_most)
                phase.note()


async def opens(here: Run, http: httpx2.AsyncClient, url: str) -> None:
    """Follows to the end; one that is refused ends without an event, to be tried later."""
    is_open = False
    async with http.stream("GET", url) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("event: ") and not is_open:
                is_open = True
                here.open_now += 1
                here.open_most = max(here.open_most, here.open_now)
    here.open_now -= is_open


async def sliced(here: Run) -> int:
    """How many decisions both gateways have made from their slices."""
    total = 0
    for number in range(GATEWAYS):
        async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
            page = (await http.get(here.url(number) + "/metrics")).text
        (line,) = [
            row for row in page.splitlines() if row.startswith("tertulia_limits_sliced_total ")
        ]
        total += int(float(line.split()[1]))
    return total


async def drift(here: Run) -> str:
    """What the ledger's check says, empty if every balance is what the settlements say."""
    config = str(here.stage.fleet.config)
    command = [sys.executable, "-m", "tertulia", "ledger", "check", "--config", config]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    return "" if process.returncode == 0 else said.decode()


def faults_of(phases: Sequence[Phase], drifted: str, *, seconds: float) -> list[str]:
    """What was promised and not kept."""
    calm, faults = phases[0], []
    for phase in phases:
        if phase.failed["plus"]:
            faults.append(f"{phase.name}: {phase.failed['plus']} turns of paid people failed")
        later_s = phase.wait_s(0.95) - calm.wait_s(0.95)
        if later_s >= RISE_S:
            faults.append(f"{phase.name}: first words {later_s:.3f} s later")
        if max(phase.held, default=0) > MOST:
            faults.append(f"{phase.name}: {max(phase.held)} streams of one person, {MOST} are most")
        is_away = phase.name in ("killed", "silent")
        if is_away and not phase.sliced:
            faults.append(f"{phase.name}: nothing was decided by slices, so nothing was shown")
        if not is_away and seconds > SETTLED_S and phase.held[-1] < STREAMS:
            faults.append(f"{phase.name}: {phase.held[-1]} streams at its end, so some are lost")
    if drifted:
        faults.append(f"the ledger has drift: {drifted}")
    return faults


async def _main(seconds: float) -> list[str]:
    async with a_run() as here:
        phases = await run(here, seconds)
        return faults_of(phases, await drift(here), seconds=seconds)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each phase lasts")
    faults = asyncio.run(_main(parser.parse_args().seconds))
    print(json.dumps({"streams_allowed": STREAMS, "most_with_slices": MOST, "faults": faults}))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
