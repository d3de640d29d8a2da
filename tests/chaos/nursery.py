"""The other end of the zygote: starts processes by name, kills and freezes them, hears of each end.

Every exit that nobody here asked for is kept as unexplained (C19).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
# What the children of a run use; imported (and called, where a function is named) before the first
# fork.
PRELOADED: Final = (
    "asyncpg",
    "tertulia.cli",
    "tertulia.terminal.roles",
    "tertulia.wiring.gateway",
    "tertulia.wiring.worker",
    "tertulia.backends.postgres",
    "tertulia.backends.valkey",
    "tests.chaos.roles:read_vocabulary",
    # What these load only when they are used.
    "anyio._backends._asyncio",
    "httpcore2._backends.anyio",
    "tertulia.supervisor",
    "truststore",
    "uvicorn.lifespan.off",
    "uvloop",
)
_READY_S: Final = 60.0
_END_S: Final = 20.0


@dataclass(slots=True)
class Child:
    """One process that the zygote forked."""

    name: str
    pid: int
    born_at: float
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    status: int | None = None
    ended_at: float | None = None
    # The end that was asked for; an exit with another status is its own.
    expected: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Order:
    """What a child becomes: `run` is `module:function`, called with `arguments`."""

    name: str
    run: str
    log: Path
    arguments: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Nursery:
    """All children of one run. `children` are those that live, `ended` those that do not."""

    children: dict[str, Child] = field(default_factory=dict)
    ended: list[Child] = field(default_factory=list)
    # Told of each end that nobody asked for.
    on_unasked: Callable[[Child], None] = lambda _: None
    _number: int = 0
    _waiting: dict[int, tuple[str, asyncio.Future[Child]]] = field(default_factory=dict)
    _writer: asyncio.StreamWriter | None = None
    _listening: asyncio.Task[None] | None = None
    _process: subprocess.Popen[bytes] | None = None

    async def open(self, log: Path, preload: Sequence[str] = PRELOADED) -> None:
        """Starts the zygote; returns when it has imported everything."""
        ours, theirs = socket.socketpair()
        with log.open("ab") as file:
            self._process = subprocess.Popen(  # noqa: ASYNC220  # once, before anything runs
                [sys.executable, "-m", "tests.chaos.zygote", str(theirs.fileno()), *preload],
                cwd=ROOT,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        theirs.close()
        reader, self._writer = await asyncio.open_connection(sock=ours)
        async with asyncio.timeout(_READY_S):
            if not await reader.readline():
                raise AssertionError(f"the zygote did not start: {log.read_text()[-2000:]}")
        self._listening = asyncio.ensure_future(self._listen(reader))

    async def close(self) -> None:
        """Ends the zygote, and everything that it forked with it."""
        assert self._writer is not None
        assert self._process is not None
        assert self._listening is not None
        self._writer.close()
        await self._listening
        await asyncio.to_thread(self._process.wait, _END_S)

    async def start(self, order: Order) -> Child:
        """Forks; returns when the process is there, which is not when it is ready."""
        assert self._writer is not None
        assert order.name not in self.children, f"{order.name} runs already"
        self._number += 1
        started: asyncio.Future[Child] = asyncio.get_running_loop().create_future()
        self._waiting[self._number] = (order.name, started)
        line = {
            "number": self._number,
            "name": order.name,
            "run": order.run,
            "log": str(order.log),
            "arguments": order.arguments,
            "environment": order.environment,
        }
        self._writer.write(json.dumps(line).encode() + b"\n")
        await self._writer.drain()
        return await started

    async def kill(self, name: str) -> Child | None:
        """`kill -9`; returns when it is gone. None if it is not there."""
        child = self.children.get(name)
        if child is None:
            return None
        child.expected = frozenset((-signal.SIGKILL,))
        os.kill(child.pid, signal.SIGKILL)
        await child.gone.wait()
        return child

    async def end(self, name: str) -> Child:
        """SIGTERM, and time to leave; `kill -9` for what stays, which is then unexplained."""
        child = self.children[name]
        child.expected = frozenset((0, -signal.SIGTERM))
        os.kill(child.pid, signal.SIGTERM)
        try:
            async with asyncio.timeout(_END_S):
                await child.gone.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):  # it may have left at the last moment
                os.kill(child.pid, signal.SIGKILL)
            await child.gone.wait()
        return child

    async def freeze(self, name: str, seconds: float) -> None:
        """SIGSTOP for that long. Who dies of something else meanwhile is not woken."""
        child = self.children.get(name)
        if child is None:
            return
        os.kill(child.pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            if child.status is None:
                os.kill(child.pid, signal.SIGCONT)

    def unexplained(self) -> list[Child]:
        """The ends that nobody asked for."""
        return [child for child in self.ended if child.status not in child.expected]

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            told = json.loads(line)
            if "started" in told:
                self._has_started(told["order"], told["started"])
            else:
                self._has_ended(told["ended"], told["status"], told["name"])

    def _has_started(self, number: int, pid: int) -> None:
        name, started = self._waiting.pop(number)
        child = Child(name, pid, time.monotonic())
        self.children[name] = child
        started.set_result(child)

    def _has_ended(self, pid: int, status: int, name: str) -> None:
        child = self.children.pop(name)
        assert child.pid == pid, (child, pid)
        child.status, child.ended_at = status, time.monotonic()
        self.ended.append(child)
        child.gone.set()
        if status not in child.expected:
            self.on_unasked(child)
