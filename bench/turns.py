"""What a turn costs from admission to settlement: on the embedded store, and on Postgres.

Prints one line a figure; nothing here is a test. Run it with `python -m bench turns`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import uvloop

from bench.store import PLENTY, new_turn
from tertulia.backends.clock import SystemClock
from tertulia.backends.memory import MemoryBackend
from tertulia.backends.postgres import PostgresBackend
from tertulia.backends.sqlite import SqliteBackend
from tertulia.core.types import Admitted, Finish, Held, Note, Outcome, Reason, Status, Usage
from tertulia.drills.postgres_server import PostgresServer

TURNS: Final = 3000
WARM: Final = 400  # the first ones connect and plan
CALLERS: Final = 64
OWNERS: Final = 500
GOAL: Final = 300.0  # turns a second that a cell is asked for
PACED_S: Final = 8.0
LEASE_S: Final = 2.0
ANSWER: Final = "y" * 800
ANSWER_IDS: Final = tuple(range(200))

Store = SqliteBackend | PostgresBackend


@dataclass
class Load:
    """Turns to do, at a rate or as fast as it goes, and how long each took."""

    store: Store
    numbers: Iterator[int]
    rate: float | None = None
    took_s: list[float] = field(default_factory=list)
    held: set[Held] = field(default_factory=set)
    n_begun: int = 0
    begun_at: float = field(default_factory=time.perf_counter)

    async def caller(self) -> None:
        """One turn after the other, each as gateway and worker do it."""
        for n in self.numbers:
            if self.rate is not None:
                due = self.begun_at + self.n_begun / self.rate
                self.n_begun += 1
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
            begun = time.perf_counter()
            await self._turn(n)
            self.took_s.append(time.perf_counter() - begun)

    async def renew(self) -> None:
        """Keeps the leases of what is held, every third of a lease."""
        while True:
            await asyncio.sleep(LEASE_S / 3)
            await self.store.queue.renew(list(self.held), lease_s=LEASE_S)

    async def _turn(self, n: int) -> None:
        turns = self.store.turns
        owner, conversation = f"u_{n % OWNERS:026d}", f"c_{n:026d}"
        answer = await turns.admit(new_turn(n, owner, conversation), PLENTY)
        assert isinstance(answer, Admitted)
        turn = await self.store.queue.claim(lease_s=LEASE_S)
        assert turn is not None
        self.held.add(turn.held)
        asked = Note(turn.attempt, "small-1", Reason.AUTO, "a", f"{n}-1", 300, "pin")
        assert await turns.note(turn.held, asked)
        usage = Usage(300, 0, 200)
        ended = Outcome(Status.COMPLETED, 1, Finish.STOP, ANSWER, usage, 40, ANSWER_IDS, "small")
        assert await turns.finish(turn.held, ended)
        self.held.discard(turn.held)


async def measure(
    store: Store, name: str, server_cpu_s: Callable[[], float], *, rates: Sequence[float | None]
) -> None:
    """Every rate, one after the other: turns a second, and what each cost us and the server."""
    numbers = iter(range(10_000_000))
    await _run(Load(store, numbers), turns=WARM)
    for rate in rates:
        turns = TURNS if rate is None else int(rate * PACED_S)
        load = Load(store, numbers, rate)
        ours, theirs, wall = time.process_time(), server_cpu_s(), time.perf_counter()
        await _run(load, turns=turns)
        wall = time.perf_counter() - wall
        ours, theirs = time.process_time() - ours, server_cpu_s() - theirs
        took = sorted(load.took_s)
        line = f"{name}, {'as fast as it goes' if rate is None else f'{rate:.0f} a second'}: "
        line += f"{turns / wall:,.0f} turns/s, {turns / ours:,.0f} a CPU-second of ours"
        line += f" ({ours / wall:.0%} of a core)"
        if theirs:
            line += f", {theirs / turns * 1e3:.2f} CPU-ms of the server each"
        print(f"{line}, p50 {_ms(took, 0.5)} ms, p99 {_ms(took, 0.99)} ms", flush=True)


async def _run(load: Load, *, turns: int) -> None:
    numbers = [next(load.numbers) for _ in range(turns)]
    waiting = iter(numbers)

    async def create() -> None:
        for n in waiting:
            await load.store.conversations.create(
                f"u_{n % OWNERS:026d}", f"c_{n:026d}", key=None, prompt_version="v1"
            )

    await asyncio.gather(*(create() for _ in range(CALLERS)))
    load.numbers = iter(numbers)
    load.begun_at = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        renewing = tasks.create_task(load.renew())
        await asyncio.gather(*(load.caller() for _ in range(CALLERS)))
        renewing.cancel()


def _ms(sorted_s: Sequence[float], share: float) -> str:
    return f"{sorted_s[int(len(sorted_s) * share)] * 1e3:.1f}"


def _cpu_s(pids: Sequence[int]) -> float:
    """What these processes have used until now."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def _measure_both() -> None:
    with tempfile.TemporaryDirectory() as made:
        embedded = SqliteBackend(Path(made) / "bench.db", SystemClock())
        await measure(embedded, "SQLite", lambda: 0.0, rates=[None])
        await embedded.close()
    folder = Path(tempfile.mkdtemp(prefix="tertulia-bench-"))
    try:
        with PostgresServer(folder) as server:
            log = MemoryBackend(SystemClock()).log
            fleet = await PostgresBackend.open(server.url, log)
            await measure(fleet, "Postgres", lambda: _cpu_s(server.pids()), rates=[None, GOAL])
            await fleet.close()
    finally:
        shutil.rmtree(folder)


def main() -> None:
    """Both stores, one after the other."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_measure_both())
