"""What a huge batch costs the gateway that pumps it: how long a step takes, how long others wait.

Prints one line a figure; nothing here is a test. Run it with `python -m bench batches`.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Final, cast

import uvloop

from bench.store import PLENTY
from tertulia.backends.clock import SystemClock
from tertulia.backends.sqlite import SqliteBackend
from tertulia.core.batches import (
    Batch,
    BatchRules,
    BatchStatus,
    LineState,
    NewBatch,
    Saved,
    Work,
    moved,
    turn_key,
)
from tertulia.core.files import FileRoom, NewFile, parts_of
from tertulia.core.types import (
    Admitted,
    Finish,
    NewTurn,
    Outcome,
    Sampling,
    Status,
    Usage,
)
from tertulia.gateway.batchinput import look_through
from tertulia.gateway.batchresults import end_batch
from tertulia.gateway.desk import Desk

LINES: Final = 50_000  # OpenAI's largest batch
ANSWERED: Final = 2_000
OWNER: Final = "u_1"
ANSWER: Final = "y" * 800
ROOM: Final = FileRoom(files=10, size=1_000_000_000)

StepOf = Callable[[Desk, Work], Awaitable[Saved]]


class Steps:
    """How long steps took, and how long the event loop was busy at a stretch beside them."""

    def __init__(self) -> None:
        self.took_s: list[float] = []
        self.cpu_s: list[float] = []  # of the event loop's thread
        self.longest_gap_s = 0.0

    @contextmanager
    def one(self) -> Iterator[None]:
        begun, cpu = time.perf_counter(), time.thread_time()
        yield
        self.took_s.append(time.perf_counter() - begun)
        self.cpu_s.append(time.thread_time() - cpu)

    async def watch(self) -> None:
        """Asks to be woken each millisecond, as a reader of tokens might."""
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            self.longest_gap_s = max(self.longest_gap_s, time.perf_counter() - before - 0.001)


async def pumped(
    store: SqliteBackend, desk: Desk, status: BatchStatus, step_of: StepOf
) -> tuple[Steps, Batch]:
    """Every step of a batch while it stands at `status`."""
    steps = Steps()
    watching = asyncio.ensure_future(steps.watch())
    while True:
        with steps.one():
            work = await store.batch_work.claim(lease_s=10.0)
            assert work is not None
            saved = await step_of(desk, work)
            assert await store.batch_work.save(saved)
        if saved.batch.status is not status:
            watching.cancel()
            return steps, saved.batch


def told(name: str, steps: Steps, n_lines: int) -> None:
    took, cpu = sorted(steps.took_s), sorted(steps.cpu_s)
    print(
        f"{name}: {n_lines} lines in {len(took)} steps and {sum(took):.2f} s, "
        f"{n_lines / sum(took):,.0f} lines/s; a step p50 {took[len(took) // 2] * 1e3:.1f} ms, "
        f"longest {took[-1] * 1e3:.1f} ms, CPU of the loop p50 {cpu[len(cpu) // 2] * 1e3:.1f} ms, "
        f"most {cpu[-1] * 1e3:.1f} ms; nobody else was kept waiting longer than "
        f"{steps.longest_gap_s * 1e3:.1f} ms",
        flush=True,
    )


def request(n: int) -> bytes:
    body = {"model": "auto", "messages": [{"role": "user", "content": f"Sum up {n}: " + "x" * 300}]}
    line = {"custom_id": f"r{n}", "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(line).encode() + b"\n"


async def begin(store: SqliteBackend, n: int, n_lines: int) -> None:
    data = b"".join(map(request, range(n_lines)))
    file = NewFile(OWNER, f"file_{n}", "in.jsonl", "batch", 1e6)
    begun = time.perf_counter()
    for part in parts_of(0, data, last="last"):
        await store.files.write(file, part, ROOM)
    took = time.perf_counter() - begun
    print(f"stored {len(data) / 1e6:.1f} MB in {took:.2f} s, {len(data) / 1e6 / took:.0f} MB/s")
    new = NewBatch(
        OWNER, f"batch_{n}", None, "", file.id, f"out_{n}", f"err_{n}", "/v1/chat/completions",
        None, 1e6,
    )  # fmt: skip
    await store.batches.create(new, limit=10)


async def answer_all(store: SqliteBackend, batch: Batch) -> Batch:
    """A finished turn for every line, as workers leave them; the batch is ready for its results."""
    for n in range(1, batch.total + 1):
        new = NewTurn(
            owner=batch.owner,
            key=turn_key(batch.id, n),
            body_sha="",
            kind="stateless",
            reply_id=f"m_{batch.id}_{n}",
            plan="batch",
            requested="auto",
            answer_tokens=200,
            prompt_tokens=100,
            sampling=Sampling(),
        )
        assert isinstance(await store.turns.admit(new, PLENTY), Admitted)
        turn = await store.queue.claim(lease_s=5.0)
        assert turn is not None
        usage = Usage(100, 0, 100)
        ended = Outcome(Status.COMPLETED, 1, Finish.STOP, ANSWER, usage, 3, tuple(range(200)), "s")
        assert await store.turns.finish(turn.held, ended)
    lines = await store.batch_work.lines(batch.owner, batch.id, after=0, limit=batch.total)
    work = await store.batch_work.claim(lease_s=10.0)
    assert work is not None
    done = replace(moved(work.batch, "finish", work.now), begun=batch.total, completed=batch.total)
    answered = tuple(replace(line, state=LineState.COMPLETED) for line in lines)
    assert await store.batch_work.save(Saved(done, answered))
    return done


async def measure(folder: Path) -> None:
    store = SqliteBackend(folder / "bench.sqlite3", SystemClock())
    desk = cast(
        "Desk",
        SimpleNamespace(
            files=store.files,
            batch_work=store.batch_work,
            turns=store.turns,
            rules=SimpleNamespace(batches=BatchRules()),
        ),
    )
    await begin(store, 1, LINES)
    steps, batch = await pumped(store, desk, BatchStatus.VALIDATING, look_through)
    told("looked through", steps, batch.total)
    await store.batches.cancel(OWNER, "batch_1")
    steps, batch = await pumped(store, desk, BatchStatus.CANCELLING, end_batch)
    told("cancelled", steps, batch.total)
    await begin(store, 2, ANSWERED)
    _, batch = await pumped(store, desk, BatchStatus.VALIDATING, look_through)
    await answer_all(store, batch)
    steps, batch = await pumped(store, desk, BatchStatus.FINALIZING, end_batch)
    told("results written", steps, batch.total)
    begun, swept = time.perf_counter(), 0
    while n := await store.batch_work.sweep(rows=500, kept_s=1e9):
        swept += n
    print(f"swept {swept} lines in {time.perf_counter() - begun:.2f} s")
    await store.close()


def main() -> None:
    """All figures, on a file in a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="tertulia-bench-") as folder:
        uvloop.run(measure(Path(folder)))
