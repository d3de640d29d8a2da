"""A real engine under random arrivals, cancels and deletions in a cache that is too small for them.

It watches memory and blocks all the while, and at the end every block must be back.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import urllib.request
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.engine.contestants import Ask, Engine, running
from bench.engine.parts import ours
from bench.engine.run import MODELS
from bench.engine.words import Words, words_of

N_CACHE, HOST_BYTES, DISK_BYTES = 3072, 40_000_000, 20_000_000
N_SHARED: Final = 64
OWNERS: Final = ("ada", "bob", "eve", "dan")
AT_ONCE: Final = 14  # more than there are slots
LOOK_S: Final = 2.0


@dataclass
class Watch:
    """What was seen of the process."""

    rss_bytes: list[int]
    most_host_blocks: int = 0


def main(arguments: Sequence[str] = ()) -> None:
    """Runs for so many minutes; an assertion says what did not hold."""
    parser = argparse.ArgumentParser(prog="python -m bench soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    contestant = ours(n_cache=N_CACHE, host_bytes=HOST_BYTES, disk_bytes=DISK_BYTES)
    with running(contestant, MODELS / "small", threads=2) as engine:
        asyncio.run(_soak(engine, MODELS / "small", options.minutes * 60, options.seed))


async def _soak(engine: Engine, folder: Path, seconds: float, seed: int) -> None:
    dice = random.Random(seed)
    words = words_of(folder).seeded(seed)
    system = words.draw(N_SHARED)
    before = _metrics(engine.port)
    watch = Watch([_rss_bytes(engine.pid)])
    done: Counter[str] = Counter()
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds

    async def live() -> None:
        while loop.time() < end_s:
            done[await _one(engine, system, words, dice)] += 1

    async def look() -> None:
        while loop.time() < end_s:
            await asyncio.sleep(LOOK_S)
            now = await asyncio.to_thread(_metrics, engine.port)
            watch.rss_bytes.append(_rss_bytes(engine.pid))
            watch.most_host_blocks = max(watch.most_host_blocks, int(now["kv_blocks_host"]))
            held = before["kv_blocks_free"] - now["kv_blocks_free"] - now["kv_blocks_idle"]
            assert 0 <= held <= before["kv_blocks_free"], now

    await asyncio.gather(look(), *(live() for _ in range(AT_ONCE)))
    for owner in OWNERS:
        await asyncio.to_thread(_post, engine.port, "/inference/v1/forget", {"cache_salt": owner})
    after = _metrics(engine.port)
    print(
        f"{seconds / 60:.1f} minutes: {dict(done)}, {after['num_preemptions_total']:.0f} preempted"
    )
    print(
        f"blocks free: {before['kv_blocks_free']:.0f} before, {after['kv_blocks_free']:.0f} after, "
        f"and {after['kv_blocks_idle']:.0f} of the beginning that is nobody's; "
        f"in memory {after['kv_blocks_host']:.0f}, at most {watch.most_host_blocks}; "
        f"on disk {after['kv_blocks_disk']:.0f}"
    )
    megabytes = [size / 1e6 for size in watch.rss_bytes]
    print(f"resident MB: {megabytes[0]:.0f} at first, {max(megabytes):.0f} at most, ", end="")
    print(f"{megabytes[len(megabytes) // 2]:.0f} half-way, {megabytes[-1]:.0f} at the end")
    assert after["num_requests_running"] == after["num_requests_waiting"] == 0
    assert after["kv_blocks_free"] + after["kv_blocks_idle"] == before["kv_blocks_free"]
    assert after["kv_blocks_idle"] + after["kv_blocks_host"] <= N_SHARED // 16
    assert watch.most_host_blocks * 16 * 23_100 <= HOST_BYTES
    assert max(megabytes) - megabytes[0] <= HOST_BYTES / 1e6 + 100, "memory grows"


async def _one(engine: Engine, system: list[int], words: Words, dice: random.Random) -> str:
    """One request: read to its end, left at a random moment, or deleted with its owner's cache."""
    owner = dice.choice(OWNERS)
    prompt = [*system, *words.draw(dice.choice([10, 80, 300, 700]))]
    ask = Ask(tuple(prompt), dice.choice([5, 40, 200]), owner, N_SHARED, dice.randint(0, 2))
    stream = await engine.begin(ask)
    try:
        if dice.random() < 0.4:
            await asyncio.wait([stream.closed], timeout=dice.expovariate(1.0))
            return "left" if not stream.closed.done() else "read"
        await asyncio.wait_for(stream.closed, 300)
        if dice.random() < 0.05:
            body = {"cache_salt": owner}
            await asyncio.to_thread(_post, engine.port, "/inference/v1/forget", body)
            return "forgotten"
        return "read"
    finally:
        stream.close()


def _post(port: int, path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), method="POST"
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return dict(json.load(answer))


def _metrics(port: int) -> dict[str, float]:
    """Figures by their names, without prefix and labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    named = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name.partition("{")[0].partition(":")[2]: float(value) for name, value in named}


def _rss_bytes(pid: int) -> int:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
