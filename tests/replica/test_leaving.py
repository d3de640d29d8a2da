"""A replica says that it is there, and goes in good order: nothing new, a while, then the end."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import httpx2
import pytest

from tertulia.backends.clock import SystemClock
from tertulia.backends.memory.fleet import MemoryRegistry
from tertulia.core.fleet import DRAINING, ReplicaReport
from tertulia.leaving import Leaving
from tertulia.ports import Registry, StoreUnavailable
from tertulia.replica import reporting
from tests.replica.conftest import END_S, POLL_S, ROOT, end_replica, start_replica

LONG = {"prompt": [504], "max_tokens": 8000, "ignore_eos": True, "stream": True, "temperature": 0}
REPORT = ReplicaReport("r1", "first", "http://127.0.0.1:1", "m", 8)


@pytest.mark.anyio
async def test_it_reports_until_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "REPORT_S", 0.001)
    registry = MemoryRegistry(SystemClock())

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Registry, None]:
        yield registry

    async with asyncio.timeout(END_S), asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(reporting.keep_reporting(opened, lambda: REPORT))
        while not await registry.reports():  # noqa: ASYNC110  # a registry has no event
            await asyncio.sleep(0.001)
        keeping.cancel()
    assert await registry.reports() == ()


@pytest.mark.anyio
async def test_a_registry_that_is_away_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporting, "AGAIN_S", 0.001)
    registry = MemoryRegistry(SystemClock())
    tries = iter(range(100))

    @asynccontextmanager
    async def opened() -> AsyncGenerator[Registry, None]:
        if next(tries) < 2:
            raise StoreUnavailable("not yet")
        yield registry

    async with asyncio.timeout(END_S), asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(reporting.keep_reporting(opened, lambda: REPORT))
        while not await registry.reports():  # noqa: ASYNC110  # a registry has no event
            await asyncio.sleep(0.001)
        keeping.cancel()


@pytest.mark.anyio
async def test_its_grace_ends_with_the_last_reply_or_the_second_signal() -> None:
    leaving, nothing, never = Leaving(), asyncio.Event(), asyncio.Event()
    nothing.set()
    assert not leaving.asked.is_set()
    leaving.ask()
    async with asyncio.timeout(END_S), asyncio.TaskGroup() as tasks:
        await leaving.asked.wait()
        await leaving.grace(1_000, until=[tasks.create_task(until(nothing))])
        running = tasks.create_task(until(never))
        await leaving.grace(0.01, until=[running])
        leaving.ask()
        await leaving.grace(1_000, until=[running])
        running.cancel()


async def until(event: asyncio.Event) -> None:
    await event.wait()


def events(answer: httpx2.Response) -> Iterator[dict[str, Any]]:
    for line in answer.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


@pytest.mark.model
@pytest.mark.processes
def test_what_runs_at_the_end_gets_its_time_and_is_then_told(small_folder: Path) -> None:
    replica = start_replica(small_folder, n_cache=8192, drain_s=1.0)
    try:
        with replica.client.stream("POST", "/v1/completions", json=LONG) as answer:
            seen = events(answer)
            next(seen)
            replica.process.send_signal(signal.SIGTERM)
            with httpx2.Client(base_url=replica.client.base_url, timeout=END_S) as another:
                while (refused := another.post("/v1/completions", json=LONG)).status_code != 503:
                    pass
                assert refused.json()["error"]["type"] == DRAINING
                assert another.get("/health").status_code == 200
            said = [event["choices"][0]["finish_reason"] for event in seen if event["choices"]]
        assert said[-1] == "abort"
        assert len(said) > 5, "it went on for a while"
        assert replica.process.wait(END_S) == 0
    finally:
        end_replica(replica)


def last_of(told: Path) -> dict[str, Any]:
    lines = told.read_text().splitlines() if told.exists() else []
    return dict(json.loads(lines[-1])) if lines else {}


@pytest.mark.model
@pytest.mark.processes
def test_an_idle_replica_goes_at_once_and_has_said_how_it_was(
    small_folder: Path, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    code = """
        import dataclasses, json, sys
        from contextlib import asynccontextmanager
        from pathlib import Path
        from tertulia.replica.main import Registration, ReplicaSettings, run

        class File:
            async def report(self, report):
                self.tell(dataclasses.asdict(report))
            async def leave(self, name, incarnation):
                self.tell({"leaves": name, "incarnation": incarnation})
            def tell(self, what):
                with Path(sys.argv[2]).open("a") as file:
                    file.write(json.dumps(what) + "\\n")

        @asynccontextmanager
        async def opened():
            yield File()

        settings = json.loads(sys.argv[1])
        settings["folder"] = Path(settings["folder"])
        sys.exit(run(ReplicaSettings(**settings), Registration(opened, pool="small")))
    """
    settings = {"folder": str(small_folder), "threads": 1, "parent_pid": os.getpid()}
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), json.dumps(settings), str(told)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        assert process.stdout is not None
        port = json.loads(process.stdout.readline())["port"]
        body = {"prompt": list(range(300, 340)), "max_tokens": 5, "ignore_eos": True}
        url = f"http://127.0.0.1:{port}"
        assert httpx2.post(f"{url}/v1/completions", json=body, timeout=END_S).status_code == 200
        # Forty of the prompt, and those said but for the last, which nothing was computed after.
        pause = Event()
        while (last := last_of(told)).get("tokens_done") != 44 or last["running"]:
            pause.wait(POLL_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_S) == 0
    finally:
        process.kill()
        process.communicate()
    assert (last["url"], last["slots"], last["pool"], last["state"]) == (url, 8, "small", "ready")
    assert (last["waiting"], last["owed_tokens"]) == (0, 0)
    assert last["prefill_per_s"] > 0
    assert last_of(told) == {"leaves": last["name"], "incarnation": last["incarnation"]}
