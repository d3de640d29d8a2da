"""Batches while gateways, workers, engines and stores die: every line is answered exactly once.

The world of the other simulations, with a pump in each gateway and nobody else who asks.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any, Final

import pytest

from tertulia.core.batches import Batch, BatchRules, BatchStatus, NewBatch, turn_key
from tertulia.core.files import FileRoom, NewFile, parts_of
from tertulia.core.plans import Plan
from tertulia.core.quota import MILLI
from tertulia.core.types import Budget, Lane, Status, Usage, User
from tertulia.gateway.pump import pump_batches
from tertulia.worker.desk import WorkerRules
from tests.sim.fleet import Climate, Fleet, Gateway, plans_of
from tests.sim.nemesis import INTENSITIES, Nemesis
from tests.sim.process import Process
from tests.sim.virtual import VirtualLoop
from tests.sim.world import _errors_to

CHAOS_S: Final = 15.0
LINES: Final = 10
ROOM: Final = FileRoom(files=100, size=10_000_000)
RULES: Final = BatchRules(open_lines=6, pause_s=0.2, lease_s=3.0)
PLAN: Final = Plan(
    name="batch",
    lane=Lane.BATCH,
    window_tokens=700,
    answer_tokens=40,
    budgets=(Budget("batch_day", "tokens", 100_000 * MILLI, 86_400_000),),
    replies_running=4,
    abandon_s=None,
    min_answer_tokens=8,
)


class PumpingGateway(Gateway):
    """A gateway with its pump, and nothing that people see."""

    def _begin(self, process: Process) -> None:
        super()._begin(process)
        self.desk = replace(self.desk, rules=replace(self.desk.rules, batches=RULES))
        process.spawn(pump_batches(self.desk), "pump")


class World:
    """A fleet, its nemesis, and what was found wrong."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.violations: list[str] = []
        self.finishes: Counter[tuple[str, Status]] = Counter()
        self.loop = VirtualLoop(max_steps=2_000_000, max_time_s=CHAOS_S + 600.0)
        climate = Climate(
            flagged=frozenset(),
            plans={**plans_of(30_000), "batch": PLAN},
            rules=WorkerRules(sentence_tokens=24, tasks=0),
        )
        self.fleet = Fleet(self.loop, self.rng, self.report, self.watch, climate)
        self.fleet.gateways = [PumpingGateway(self.fleet, f"gw{n}") for n in range(2)]
        self.nemesis = Nemesis(self.fleet, self.rng, self.rng.choice(INTENSITIES))

    def report(self, check: str, text: str) -> None:
        self.violations.append(f"{check}: {text}")

    def watch(self, port: str, method: str, args: Any, _kwargs: Any, answer: Any) -> None:
        if (port, method) == ("turns", "finish") and answer:
            held, outcome = args
            self.finishes[held.reply_id, outcome.status] += 1

    def run(self, life: Coroutine[Any, Any, None]) -> None:
        gc_was_on = gc.isenabled()
        gc.disable()  # as in the other worlds
        asyncio.set_event_loop(None)
        try:
            with _errors_to(self.report):
                self.loop.run_until_complete(life)
        finally:
            self.loop.close()
            if gc_was_on:
                gc.enable()
        assert self.violations == []

    async def begin(self, owner: str, n: int) -> Batch:
        """A batch of lines that all ask something else."""
        shared = self.fleet.shared
        lines = [_line(f"{owner} {n} {i}", self.rng) for i in range(LINES)]
        file = NewFile(owner, f"file_{owner}_{n}", "in.jsonl", "batch", 1e6)
        for part in parts_of(0, b"".join(lines), last="last"):
            await shared.files.write(file, part, ROOM)
        new = NewBatch(
            owner=owner,
            id=f"batch_{owner}_{n}",
            key=None,
            body_sha="",
            input_file_id=file.id,
            output_file_id=f"file_{owner}_{n}_output",
            error_file_id=f"file_{owner}_{n}_error",
            endpoint="/v1/chat/completions",
            metadata=None,
            output_kept_s=1e6,
        )
        made = await shared.batches.create(new, limit=10)
        assert isinstance(made, Batch)
        return made

    async def live(self, *, cancel: bool) -> None:
        fleet = self.fleet
        for owner in ("ana", "ben"):
            await fleet.shared.accounts.add(User(owner, owner, "user", "free", None, 0.0))
        for place in (*fleet.gateways, *fleet.workers):
            place.start()
        begun = [await self.begin(owner, n) for owner in ("ana", "ben") for n in range(2)]
        async with asyncio.TaskGroup() as tasks:
            if cancel:
                tasks.create_task(self._cancel(begun[0]))
            await self.nemesis.run(CHAOS_S, tasks)
            self.nemesis.heal()
            ended = [await self._end(batch) for batch in begun]
        for batch in ended:
            await self.check(batch)
        assert not fleet.shared.store.open, "a turn is left running"
        for place in (*fleet.gateways, *fleet.workers):
            assert place.process is not None
            await place.process.quit()

    async def _cancel(self, batch: Batch) -> None:
        await asyncio.sleep(self.rng.uniform(0.0, 5.0))
        await self.fleet.shared.batches.cancel(batch.owner, batch.id)

    async def _end(self, batch: Batch) -> Batch:
        while True:
            found = await self.fleet.shared.batches.find(batch.owner, batch.id)
            assert found is not None
            if found.status.is_final:
                return found
            await asyncio.sleep(0.5)

    async def check(self, batch: Batch) -> None:
        output = await self._results(batch, batch.output_file_id)
        errors = await self._results(batch, batch.error_file_id)
        n_lines = Counter(result["custom_id"] for result in (*output, *errors))
        assert set(n_lines.values()) <= {1}, "a line has two results"
        assert len(n_lines) == batch.total == batch.completed + batch.failed
        if batch.status is not BatchStatus.CANCELLED:
            assert batch.status is BatchStatus.COMPLETED
            assert batch.total == LINES
        assert len(output) == batch.completed
        for n in range(1, batch.total + 1):
            self._check_turn(batch, n)
        self._check_usage(batch)
        for result in output:
            _, _, reply_id = result["response"]["body"]["id"].partition("-")
            turn = self.fleet.shared.store.turns[reply_id]
            said = result["response"]["body"]["choices"][0]["message"]["content"]
            assert said == turn.text

    def _check_turn(self, batch: Batch, n: int) -> None:
        store = self.fleet.shared.store
        reply_id = store.turn_keys.get((batch.owner, turn_key(batch.id, n)))
        if reply_id is not None:
            assert self.finishes[reply_id, Status.COMPLETED] <= 1
            runs = [key for key in store.settlements if key[1] == reply_id]
            n_failed = self.finishes[reply_id, Status.FAILED]
            assert len(runs) <= n_failed + 1, "a line was charged more often than it ran"

    def _check_usage(self, batch: Batch) -> None:
        """What the batch says that it used is what its owner was charged for."""
        store = self.fleet.shared.store
        replies = {
            store.turn_keys.get((batch.owner, turn_key(batch.id, n)))
            for n in range(1, batch.total + 1)
        }
        if any(self.finishes[str(reply_id), Status.FAILED] for reply_id in replies):
            return  # a failure that was seen by two pumps may be counted by neither
        charged = Usage()
        for key, settled in store.settlements.items():
            if key[1] in replies:
                usage = settled.settlement.usage
                charged = Usage(
                    charged.input + usage.input,
                    charged.cached + usage.cached,
                    charged.output + usage.output,
                )
        assert batch.usage == charged

    async def _results(self, batch: Batch, file_id: str) -> list[dict[str, Any]]:
        raw = await self.fleet.shared.files.read(batch.owner, file_id, at=0, size=10_000_000)
        return [json.loads(line) for line in (raw or b"").splitlines()]


def _line(custom_id: str, rng: random.Random) -> bytes:
    words = " ".join(rng.choice(("oak", "elm", "fog", "moor")) for _ in range(rng.randint(1, 9)))
    request = {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "auto", "messages": [{"role": "user", "content": f"the {words}"}]},
    }
    return json.dumps(request).encode() + b"\n"


@pytest.mark.parametrize("seed", range(6))
def test_every_line_is_answered_once_whoever_dies(seed: int) -> None:
    world = World(seed)
    world.run(world.live(cancel=False))


@pytest.mark.parametrize("seed", range(6))
def test_a_cancelled_batch_ends_whoever_dies(seed: int) -> None:
    world = World(1_000 + seed)
    world.run(world.live(cancel=True))
