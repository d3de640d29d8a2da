"""`python -m tests.valkey.cancels [CALLS] [SEED]`: calls on one pipelined connection, cancelled at
random. Each asks for its own key's value; an answer that is another's is counted as wrong."""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tertulia.backends.valkey.client import Client
from tertulia.drills.valkey_server import standalone
from tertulia.ports import StoreUnavailable

CALLS = 10_000
_AT_ONCE = 200


async def cancel_at_random(urls: Sequence[str], *, calls: int, seed: int) -> tuple[int, int]:
    """How many answers were wrong, and how many calls were cancelled."""
    rng = random.Random(seed)
    client = await Client.open(urls, patience_s=1.0, jitter=rng.random)
    counts = {"wrong": 0, "cancelled": 0}
    names = [f"owner-{n}" for n in range(_AT_ONCE)]
    for name in names:
        await client.call(name, "SET", name, f"secret of {name}", budget_s=5.0)

    async def ask(name: str) -> None:
        try:
            answer = await client.call(name, "GET", name, budget_s=5.0)
        except asyncio.CancelledError:
            counts["cancelled"] += 1
            raise
        except StoreUnavailable:
            return
        counts["wrong"] += answer != f"secret of {name}".encode()

    for _ in range(calls // _AT_ONCE):
        asking = [asyncio.create_task(ask(name)) for name in rng.sample(names, _AT_ONCE)]
        for task in asking:
            when = rng.choice((None, 0.0, rng.uniform(0, 0.004), rng.uniform(0, 0.02)))
            if when is not None:
                asyncio.get_running_loop().call_later(when, task.cancel)
        await asyncio.gather(*asking, return_exceptions=True)
    await client.close()
    return counts["wrong"], counts["cancelled"]


def main(calls: str = str(CALLS), seed: str = "1") -> int:
    with tempfile.TemporaryDirectory() as folder, standalone(Path(folder)) as servers:
        wrong, cancelled = asyncio.run(
            cancel_at_random(servers.urls, calls=int(calls), seed=int(seed))
        )
    print(f"{calls} calls, {cancelled} cancelled, {wrong} wrong answers (seed {seed})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
