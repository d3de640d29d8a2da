"""`kill -9` of a process that writes: whatever it acknowledged is there, without a gap.

The child is this file run as a program; it prints a line for each answer it got from the store.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tertulia.backends.clock import SystemClock
from tertulia.backends.sqlite import SqliteBackend
from tertulia.core.types import Admitted, Append, Status, Usage
from tests.conformance.world import PLENTY, ManualClock, completed, entries, stateless

ROOT = Path(__file__).parents[2]
STREAMS = 8
KILLS = 5
LINES = 150  # answers before each kill


@pytest.mark.anyio
@pytest.mark.processes
async def test_what_was_acknowledged_survives_every_kill(
    tmp_path: Path, empty_file: Path, clock: ManualClock
) -> None:
    path = tmp_path / "tertulia.db"
    shutil.copyfile(empty_file, path)
    told: dict[str, int] = {}
    finished: set[str] = set()
    for life in range(KILLS):
        for line in _one_life(path, life):
            word, name, number = line.split()
            if word == "log":
                told[name] = max(told.get(name, 0), int(number))
            elif word == "end":
                finished.add(name)
            else:
                told.setdefault(name, 0)
        # The lock died with its holder: opening again needs nobody's help.
        store = SqliteBackend(path, clock)
        for name, last in told.items():
            turn = await store.turns.find("ana", name)
            assert turn is not None, f"life {life}: {name} was acknowledged and is gone"
            view = await store.log.read(name, 0)
            seen = [] if view is None else list(view.entries)
            assert len(seen) >= last, f"life {life}: {name} lost acknowledged entries"
            assert seen == list(entries(1, len(seen))), f"life {life}: {name} has a gap"
            if name in finished:
                assert (turn.status, turn.text, len(seen)) == (Status.STOPPED, "Answer", 5)
        await store.close()
    assert len(finished) > KILLS


def _one_life(path: Path, life: int) -> list[str]:
    """Starts a writer, listens to enough of its answers and kills it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.conformance.test_crashes", str(path), str(life)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    try:
        lines = [child.stdout.readline() for _ in range(LINES)]
    finally:
        child.send_signal(signal.SIGKILL)
        rest, _ = child.communicate()
    assert child.returncode == -signal.SIGKILL
    # What it had printed before it died was acknowledged as well; a torn last line was not.
    whole = "".join(lines) + rest
    return whole.splitlines()[: whole.count("\n")]


async def _write_until_killed(path: Path, life: int) -> None:
    store = SqliteBackend(path, SystemClock())
    await asyncio.gather(*(_turns(store, f"{life}{n}") for n in range(STREAMS)))


async def _turns(store: SqliteBackend, stream: str) -> None:
    for n in range(10_000):
        admitted = await store.turns.admit(stateless(f"{stream}_{n}"), PLENTY)
        assert isinstance(admitted, Admitted)
        name = admitted.turn.reply_id
        print("turn", name, 0, flush=True)
        turn = await store.turns.seize("ana", name, "mine")  # as a claim of just this one
        assert turn is not None
        await store.queue.renew([turn.held], lease_s=60)
        assert await store.log.fence(name, turn.epoch, 1) is not None
        for seq in range(1, 6):
            answer = await store.log.append(name, turn.epoch, 1, entries(seq, seq))
            assert answer is Append.DONE
            print("log", name, seq, flush=True)
        ended = completed(status=Status.STOPPED, usage=Usage(output=10))
        assert await store.turns.finish(turn.held, ended)
        print("end", name, 0, flush=True)


if __name__ == "__main__":
    asyncio.run(_write_until_killed(Path(sys.argv[1]), int(sys.argv[2])))
