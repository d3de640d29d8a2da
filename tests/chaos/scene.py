"""One run: a fleet, its people and a nemesis over stores that are there; at the end the evidence.

Several scenes may follow each other over the same stores: each has people of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import re
import secrets
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tertulia.backends.postgres import PostgresBackend
from tertulia.backends.vocabulary import load_vocabulary
from tertulia.core.types import ApiKey, User
from tertulia.core.types import Balance as StoredBalance
from tests.chaos import gather
from tests.chaos.disk import SmallDisk
from tests.chaos.evidence import Balance, Evidence, Exit, Rest
from tests.chaos.fleet import HERE, Fleet, Size, get
from tests.chaos.nemesis import Dose, Nemesis
from tests.chaos.nursery import Nursery, Order
from tests.chaos.orders import Line, reach
from tests.chaos.people import PATIENCE_S, Habits, Person
from tests.chaos.stores import StoreHands

_LOOK_S: Final = 0.1
_TOLD_S: Final = 10.0
# After the last heal people go on for so long: what was broken must work again.
_AFTER_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Script:
    """What is played: who, how much, and what goes wrong."""

    name: str
    seed: int
    size: Size = field(default_factory=Size)
    habits: Habits = field(default_factory=Habits)
    dose: Dose = field(default_factory=Dose)
    only: frozenset[str] = frozenset()
    mutant: str = ""
    people: int = 12
    reposted: float = 0.15  # share of the keys that are posted again at the end
    quiet_s: float = 75.0  # longest wait for the last turn to end


@dataclass(slots=True)
class Stage:
    """What scenes share: the stores, the zygote, and the database's own view for the checker."""

    folder: Path
    models: Path
    nursery: Nursery
    stores: StoreHands
    backend: PostgresBackend
    disk: SmallDisk | None = None


async def play(stage: Stage, script: Script) -> tuple[Evidence, Nemesis]:
    """Runs a scene to its end and gathers what it left."""
    folder = stage.folder / script.name
    folder.mkdir()
    fleet = Fleet(
        folder, stage.models, script.size, stage.nursery, stage.stores, mutant=script.mutant
    )
    n_ended = len(stage.nursery.ended)
    evidence = Evidence(
        limits=script.size.replies,
        step_s=script.size.step_s,
        lease_s=script.size.lease_s,
        call_s=PATIENCE_S,
        journalled=script.size.engine == "fake",
    )
    await fleet.start()
    people = await _settle_people(stage, script)
    line = await _bring_people(fleet, script, people)
    chance = random.Random(f"{script.name}/{script.seed}")
    nemesis = Nemesis(fleet, stage.stores, line, chance, script.dose, stage.disk)
    try:
        evidence.baseline = await _at_rest(fleet)
        await line.order(do="begin")
        await nemesis.run(script.only)
        evidence.heal_at = time.monotonic()
        await fleet.ready([*fleet.gateways, *fleet.workers])
        await asyncio.sleep(_AFTER_S)
        leaving = asyncio.ensure_future(line.order(do="leave", at_most_s=script.quiet_s))
        left_at = time.monotonic()
        await _until_nothing_is_open(stage, people, script.quiet_s)
        evidence.quiet_at = evidence.heal_at + (time.monotonic() - left_at)
        await leaving
        await line.order(do="post_again", share=script.reposted)
        await line.order(do="look_for_deleted")
        await _until_nothing_is_open(stage, people, script.quiet_s)
        evidence.at_rest = await _at_rest(fleet)
        await _ask_engines(fleet, evidence)
        await _gather(stage, fleet, people, evidence)
    finally:
        await line.close()
        await _end(fleet)
    evidence.exits = [
        Exit(child.name, child.status, child.ended_at or 0.0, fleet.last_words(child.name))
        for child in stage.nursery.ended[n_ended:]
        if child.status not in child.expected
    ]
    evidence.incidents, evidence.phases = nemesis.incidents, nemesis.phases
    evidence.quiet_auths = nemesis.asked_while_quiet
    gather.journals(
        [folder / f"{name}.journal" for name in fleet.engines], stage.nursery.ended, evidence
    )
    return evidence, nemesis


async def _settle_people(stage: Stage, script: Script) -> list[Person]:
    """Accounts with a key each; half of them pay."""
    made: list[Person] = []
    for n in range(script.people):
        plan = "plus" if n % 2 else "free"
        name = f"{script.name}-{plan}-{n}"
        now = time.time()
        user = User(f"u_{name}", name, "user", plan, None, now)
        assert await stage.backend.accounts.add(user) is not None, name
        secret = "tk_" + secrets.token_urlsafe(24)
        hashed = hashlib.sha256(secret.encode()).hexdigest()
        await stage.backend.api_keys.add(
            ApiKey(f"key_{name}", user.id, "chaos", secret[:8], hashed, now)
        )
        made.append(Person(user.id, plan, secret, script.size.replies[plan]))
    return made


async def _bring_people(fleet: Fleet, script: Script, people: Sequence[Person]) -> Line:
    at = fleet.folder / "people.sock"
    arguments: dict[str, Any] = {
        "at": str(at),
        "people": [asdict(person) for person in people],
        "gates": fleet.gates,
        "history": str(fleet.folder / "history"),
        "seed": f"{script.name}/{script.seed}",  # so that no two scenes have a mark in common
        "habits": asdict(script.habits),
    }
    log = fleet.folder / "people.log"
    await fleet.nursery.start(Order("people", f"{HERE}:crowd", log, arguments))
    return await reach(at)


async def _until_nothing_is_open(stage: Stage, people: Sequence[Person], at_most_s: float) -> None:
    """Returns when no turn is open, or after a time that is a violation by itself."""
    until = time.monotonic() + at_most_s
    while time.monotonic() < until:
        spent = [await stage.backend.accounts.spent(person.id) for person in people]
        if not any(one.running for one in spent):
            return
        await asyncio.sleep(_LOOK_S)


async def _at_rest(fleet: Fleet) -> dict[str, Rest]:
    """What each gateway and worker holds while nothing is asked of it."""
    names = [*fleet.gateways, *fleet.workers]
    books = [fleet.folder / f"{name}.book" for name in names]
    asked_at = time.monotonic()
    for name in names:
        os.kill(fleet.nursery.children[name].pid, signal.SIGUSR1)
    async with asyncio.timeout(_TOLD_S):
        while len(told := gather.rests(books, asked_at)) < len(names):  # noqa: ASYNC110  # files appear without an event
            await asyncio.sleep(_LOOK_S)
    return told


async def _ask_engines(fleet: Fleet, evidence: Evidence) -> None:
    for name in fleet.engines:
        _, page = await get(fleet.ports[name], "/metrics")
        told = figures_in(page)
        running = told.get("vllm:num_requests_running", -1.0)
        evidence.running[name] = int(running + told.get("vllm:num_requests_waiting", 0.0))
        if fleet.size.engine == "real":
            held = told["tertulia:kv_blocks_free"] + told["tertulia:kv_blocks_idle"]
            evidence.leaked[name] = int(blocks_in(page) - held)
    for name in (*fleet.gateways, *fleet.workers):
        _, page = await get(fleet.ports[name], "/metrics")
        gather.note_marks(evidence.papers, f"figures of {name}", page)
        line = Path(f"/proc/{fleet.nursery.children[name].pid}/cmdline").read_bytes()
        gather.note_marks(evidence.papers, f"command line of {name}", line.decode())


def figures_in(page: str) -> dict[str, float]:
    """The values of a page for Prometheus, by name, without labels."""
    lines = [line.rpartition(" ") for line in page.splitlines() if line and line[0] != "#"]
    return {name.partition("{")[0]: float(value) for name, _, value in lines}


def blocks_in(page: str) -> int:
    """How many blocks an engine's cache has, which is a label."""
    found = re.search(r'num_gpu_blocks="(\d+)"', page)
    assert found is not None, "the engine does not say how many blocks it has"
    return int(found[1])


async def _gather(stage: Stage, fleet: Fleet, people: Sequence[Person], evidence: Evidence) -> None:
    owners = [person.id for person in people]
    folder, roles = fleet.folder, [*fleet.gateways, *fleet.workers]
    vocabulary = load_vocabulary(stage.models / "small")
    gather.histories(folder / "history", evidence)
    await gather.rows_of(stage.stores.database, owners, vocabulary, evidence)
    for owner in owners:
        spent = await stage.backend.accounts.spent(owner)
        drifts = (await stage.backend.ledger.check(owner)).values()
        evidence.balances.append(
            Balance(
                owner,
                sum(abs(_used(found.kept) - _used(found.due)) or 1 for found in drifts),
                sum(holding.worst_case.output for holding in spent.holdings),
                len(spent.holdings),
            )
        )
    gather.books([folder / f"{name}.book" for name in roles], evidence)
    gather.keys(await stage.stores.texts(), evidence)
    gather.papers([folder / f"{name}.log" for name in (*roles, "people", "relays")], evidence)


def _used(balance: StoredBalance | None) -> int:
    return balance.used if balance is not None else 0


async def _end(fleet: Fleet) -> None:
    """Roles end in good order; of the rest nothing is worth that."""
    fleet.is_ending = True
    for name in (*fleet.gateways, *fleet.workers):
        if name in fleet.nursery.children:
            await fleet.nursery.end(name)
    for name in (*fleet.engines, "people", "relays"):
        if name in fleet.nursery.children:
            await fleet.nursery.kill(name)
    await fleet.hang_up()
