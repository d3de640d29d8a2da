"""What the embedded store costs: log appends of many streams at once.

Prints one line a figure; nothing here is a test. Run it with `python -m bench store`.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Final

from tertulia.backends.clock import SystemClock
from tertulia.backends.memory import MemoryBackend
from tertulia.backends.sqlite import SqliteBackend
from tertulia.core.types import (
    Budget,
    Entry,
    Limits,
    NewTurn,
    Sampling,
)

STREAMS: Final = 200
APPENDS: Final = 100  # of each stream
# As many as a plan has, and none that is ever used up.
PLENTY: Final = Limits(
    (
        Budget("units_3h", "units", 1 << 50, 10_800_000),
        Budget("tokens_minute", "tokens", 1 << 50, 60_000),
        Budget("tokens_day", "tokens", 1 << 50, 86_400_000),
        Budget("turns_minute", "turns", 1 << 50, 60_000),
    ),
    replies_running=1 << 20,
)
BYTES: Final = 60  # of an entry: about four words


async def measure_appends(
    store: SqliteBackend | MemoryBackend, name: str, *, pace_s: float
) -> None:
    """All streams append as often as the pace says; one follower each reads and waits."""
    replies = [f"m_{pace_s}_{n:026d}" for n in range(STREAMS)]
    for reply_id in replies:
        await store.log.fence(reply_id, 1, 1)
    writer = store.log._writer if isinstance(store, SqliteBackend) else None  # noqa: SLF001 - measures its thread
    writer_start = await writer.put(lambda _: time.thread_time()) if writer else 0.0
    cpu, wall, loop = time.process_time(), time.perf_counter(), time.thread_time()
    waits: list[float] = []
    await asyncio.gather(
        *(
            _stream(store, reply_id, waits, pace_s, pace_s * n / STREAMS)
            for n, reply_id in enumerate(replies)
        ),
        *(_follower(store, reply_id) for reply_id in replies),
    )
    loop, cpu = time.thread_time() - loop, time.process_time() - cpu
    wall = time.perf_counter() - wall
    total = STREAMS * APPENDS
    waits.sort()
    line = f"{name}: {total / wall:,.0f} appends/s, CPU {cpu / total * 1e6:.1f} us each"
    if writer is not None:
        used = await writer.put(lambda _: time.thread_time()) - writer_start
        line += f" (writer {used / total * 1e6:.1f}, loop with follower {loop / total * 1e6:.1f})"
    middle, slow = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
    print(f"{line}, answered after {middle * 1e3:.1f} ms, p99 {slow * 1e3:.1f} ms")


async def _stream(
    store: SqliteBackend | MemoryBackend,
    reply_id: str,
    waits: list[float],
    pace_s: float,
    first_s: float,
) -> None:
    begun = time.perf_counter() + first_s
    for n in range(1, APPENDS + 1):
        if pace_s:
            await asyncio.sleep(max(0.0, begun + n * pace_s - time.perf_counter()))
        start = time.perf_counter()
        await store.log.append(reply_id, 1, 1, [Entry(n, "delta", b"x" * BYTES, b"y" * 16)])
        waits.append(time.perf_counter() - start)


async def _follower(store: SqliteBackend | MemoryBackend, reply_id: str) -> None:
    seen = 0
    while seen < APPENDS:
        await store.log.wait(reply_id, 1, seen, timeout_s=60)
        view = await store.log.read(reply_id, seen)
        assert view is not None
        seen = view.last


def new_turn(n: int, owner: str, conversation: str) -> NewTurn:
    """A message of fifty words as the first of its conversation."""
    return NewTurn(
        owner=owner,
        key=f"m_{n:026d}",
        body_sha="s" * 64,
        kind="message",
        reply_id=f"m_r{n:025d}",
        plan="free",
        requested="auto",
        answer_tokens=400,
        prompt_tokens=300,
        sampling=Sampling(),
        conversation_id=conversation,
        user_message_id=f"m_u{n:025d}",
        content="x" * 200,
        content_tokens=50,
        tokenizer="small",
        title="A question",
    )


async def _measure() -> None:
    memory = MemoryBackend(SystemClock())
    await measure_appends(memory, "memory, as fast as it goes", pace_s=0)
    with tempfile.TemporaryDirectory() as made:
        store = SqliteBackend(Path(made) / "bench.db", SystemClock())
        await measure_appends(store, "sqlite, as fast as it goes", pace_s=0)
        await measure_appends(store, "sqlite, 10 a second each", pace_s=0.1)
        await store.close()


def main() -> None:
    """Both back ends, one after the other."""
    asyncio.run(_measure())


if __name__ == "__main__":
    main()
