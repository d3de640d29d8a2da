"""What a fleet's log costs: appends, following, waiting for a replica; redis-py beside it.

Prints one line a figure; nothing here is a test. Run it with `python -m bench log`: it starts its
own servers, ours on one core and theirs on another where there are two.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import redis.asyncio
import uvloop

from tertulia.backends.valkey import ValkeyBackend
from tertulia.backends.valkey.entries import packed
from tertulia.backends.valkey.scripts import script
from tertulia.core.types import Entry
from tertulia.drills.valkey_server import ValkeyServer, primary_and_replica, standalone

IN_FLIGHT: Final = (1, 20, 200)
LASTS_S: Final = 3.0
STREAMS: Final = 200
PACE_S: Final = 0.1
BYTES: Final = 60  # of an entry: about four words
REPLICA_MS: Final = 100  # how long an append waits for a replica that is away

Append = Callable[[str, int], Awaitable[object]]


def entry(seq: int) -> Entry:
    return Entry(seq, "delta", b"x" * BYTES, b"y" * 16)


async def measure_appends(
    name: str, server: ValkeyServer, append: Append, start: Append, in_flight: int
) -> None:
    """So many streams, each with one append under way, as fast as it goes."""
    replies = [f"m_{time.monotonic_ns()}_{n:010d}" for n in range(in_flight)]
    for reply_id in replies:
        await start(reply_id, 0)
    took: list[float] = []
    theirs, ours, wall = _server_cpu_s(server), time.process_time(), time.perf_counter()
    until = wall + LASTS_S

    async def stream(reply_id: str) -> None:
        seq, now = 1, time.perf_counter()
        while now < until:
            await append(reply_id, seq)
            seq, before, now = seq + 1, now, time.perf_counter()
            took.append(now - before)

    await asyncio.gather(*map(stream, replies))
    wall, ours = time.perf_counter() - wall, time.process_time() - ours
    theirs = _server_cpu_s(server) - theirs
    total = len(took)
    print(
        f"{name}, {in_flight} at once: {total / wall:,.0f} appends/s, "
        f"{total / ours:,.0f} per CPU-second of ours, {total / theirs:,.0f} of the server's; "
        f"answered after {_spread(took)}",
        flush=True,
    )


async def measure_following(server: ValkeyServer) -> None:
    """Paced streams, each followed by another process's log: from the append to the reader."""
    async with _opened(server) as writer, _opened(server) as reader:
        replies = [f"m_follow_{n:010d}" for n in range(STREAMS)]
        appended: dict[tuple[str, int], float] = {}
        late: list[float] = []
        n_each = int(LASTS_S / PACE_S)

        async def write(reply_id: str, first_s: float) -> None:
            begun = time.perf_counter() + first_s
            for seq in range(1, n_each + 1):
                await asyncio.sleep(max(0.0, begun + seq * PACE_S - time.perf_counter()))
                appended[reply_id, seq] = time.perf_counter()
                await writer.log.append(reply_id, 1, 1, [entry(seq)])

        async def follow(reply_id: str) -> None:
            seen = 0
            while seen < n_each:
                await reader.log.wait(reply_id, 1, seen, timeout_s=60)
                view = await reader.log.read(reply_id, seen)
                now = time.perf_counter()
                if view is not None:
                    late.extend(now - appended[reply_id, one.seq] for one in view.entries)
                    seen = view.last

        for reply_id in replies:
            await writer.log.fence(reply_id, 1, 1)
            await reader.log.read(reply_id, 0)
        ours = time.process_time()
        await asyncio.gather(
            *(write(reply_id, PACE_S * n / STREAMS) for n, reply_id in enumerate(replies)),
            *map(follow, replies),
        )
        ours = time.process_time() - ours
    print(
        f"{STREAMS} streams of {1 / PACE_S:.0f} appends a second, written and followed: read "
        f"after {_spread(late)}; {ours / len(late) * 1e6:.0f} us of ours each",
        flush=True,
    )


async def _measure(folder: Path) -> None:
    with standalone(folder / "one") as servers:
        server = _pinned(servers[0])
        async with _opened(server) as ours:
            append, start = _by_us(ours)
            for in_flight in IN_FLIGHT:
                await measure_appends("ours", server, append, start, in_flight)
        async with redis.asyncio.Redis(port=server.port) as theirs:
            script_at = await theirs.script_load(script("append").body)
            async with _opened(server) as ours:
                start = _by_us(ours)[1]
                for in_flight in IN_FLIGHT:
                    append = _Pipelined(theirs, script_at, in_flight).append
                    name = "redis-py, one pipeline"
                    await measure_appends(name, server, append, start, in_flight)
        await measure_following(server)
    with primary_and_replica(folder / "two") as servers:
        server = _pinned(servers[0])
        async with _opened(server) as ours:
            append, start = _by_us(ours)

            async def append_and_wait(reply_id: str, seq: int) -> object:
                """Both leave together: WAIT counts what this connection wrote before it."""
                asked = asyncio.gather(
                    append(reply_id, seq),
                    ours._client.call(reply_id, "WAIT", 1, REPLICA_MS, budget_s=5.0),  # noqa: SLF001 - not in the port
                )
                _, copies = await asked
                assert copies == 1
                return copies

            for in_flight in IN_FLIGHT:
                await measure_appends("with a replica", server, append, start, in_flight)
                await measure_appends("and WAIT 1", server, append_and_wait, start, in_flight)


def _by_us(backend: ValkeyBackend) -> tuple[Append, Append]:
    async def append(reply_id: str, seq: int) -> object:
        return await backend.log.append(reply_id, 1, 1, [entry(seq)])

    async def start(reply_id: str, _: int) -> object:
        return await backend.log.fence(reply_id, 1, 1)

    return append, start


class _Pipelined:
    """redis-py at its best: the appends of all streams gather in one pipeline, which is sent when
    every stream waits for it."""

    def __init__(self, client: redis.asyncio.Redis, sha: str, in_flight: int) -> None:
        self._client = client
        self._sha = sha
        self._in_flight = in_flight
        self._pipeline = client.pipeline(transaction=False)
        self._waiting: list[asyncio.Future[None]] = []

    async def append(self, reply_id: str, seq: int) -> None:
        keys = (f"tertulia:log:{{{reply_id}}}", f"tertulia:entries:{{{reply_id}}}")
        words = (1, 1, seq, seq, packed([entry(seq)]), 3_600_000 if seq == 1 else 0)
        self._pipeline.evalsha(self._sha, 2, *keys, *words)
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        if len(self._waiting) == self._in_flight:
            together, self._waiting = self._waiting, []
            answers = await self._client_execute()
            assert answers == [b"done"] * len(together)
            for one in together:
                one.set_result(None)
        else:
            asyncio.get_running_loop().call_later(1.0, _give_up, waiting)
        await waiting

    async def _client_execute(self) -> list[bytes]:
        pipeline, self._pipeline = self._pipeline, self._client.pipeline(transaction=False)
        return list(await pipeline.execute())


def _give_up(waiting: asyncio.Future[None]) -> None:
    """At the end the last streams wait for others that have ended."""
    if not waiting.done():
        waiting.set_result(None)


@asynccontextmanager
async def _opened(server: ValkeyServer) -> AsyncIterator[ValkeyBackend]:
    backend = await ValkeyBackend.open([server.url])
    try:
        yield backend
    finally:
        await backend.close()


def _pinned(server: ValkeyServer) -> ValkeyServer:
    """Ours on the first core, the server on the second."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        pid = int(dict(_lines(server.info("server")))["process_id"])
        os.sched_setaffinity(pid, cores[1:2])
        os.sched_setaffinity(0, cores[:1])
    return server


def _server_cpu_s(server: ValkeyServer) -> float:
    told = dict(_lines(server.info("cpu")))
    return float(told["used_cpu_user"]) + float(told["used_cpu_sys"])


def _lines(info: str) -> Iterator[tuple[str, str]]:
    for line in info.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            yield name, value


def _spread(took_s: list[float]) -> str:
    took_s.sort()
    middle, slow = took_s[len(took_s) // 2], took_s[len(took_s) * 99 // 100]
    return f"p50 {middle * 1e3:.2f} ms, p99 {slow * 1e3:.2f} ms"


def main() -> None:
    """All of it, on servers of its own."""
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(_measure(Path(folder)))


if __name__ == "__main__":
    main()
