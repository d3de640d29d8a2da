"""Stands beside the stores of one process and writes down what each call on them answered.

It changes nothing. A process that is killed between an answer and its line leaves no line; nobody
may conclude anything from a line that is not there.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import stat
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tertulia.backends.checks import RulesChecks
from tertulia.core.types import Entry, Turn, Verdict
from tertulia.wiring import stores as wiring_stores
from tertulia.wiring.stores import Stores
from tests.chaos.histories import FLAGGED, appending


class Notebook:
    """One process's lines, each written at once: only a kill cuts one in two."""

    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self._file = appending(path)

    def note(self, op: str, reply: str, epoch: int, t0: float, **more: Any) -> None:
        line = {
            "proc": self._name, "op": op, "reply": reply, "epoch": epoch, "attempt": 0,
            "first": 0, "last": 0, "verdict": "done", **more, "t0": t0, "t1": time.monotonic(),
        }  # fmt: skip
        self.write(line)

    def write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")


class _Beside:
    """Passes every call on to the real store; a subclass notes some."""

    def __init__(self, real: Any, book: Notebook) -> None:
        self._real = real
        self._book = book

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Queue(_Beside):
    async def claim(self, **how: Any) -> Turn | None:
        t0 = time.monotonic()
        turn: Turn | None = await self._real.claim(**how)
        if turn is not None:
            self._book.note("claim", turn.reply_id, turn.epoch, t0, attempt=turn.attempt)
        return turn


class _Log(_Beside):
    async def fence(self, reply_id: str, epoch: int, attempt: int) -> Any:
        t0 = time.monotonic()
        fenced = await self._real.fence(reply_id, epoch, attempt)
        found: dict[str, Any] = {"verdict": "stale"}
        if fenced is not None:
            found = {"attempt": fenced.attempt, "last": len(fenced.entries)}
        self._book.note("fence", reply_id, epoch, t0, **found)
        return fenced

    async def append(
        self, reply_id: str, epoch: int, attempt: int, entries: Sequence[Entry]
    ) -> Any:
        return await self._written("append", reply_id, epoch, attempt, entries)

    async def reseed(
        self, reply_id: str, epoch: int, attempt: int, entries: Sequence[Entry]
    ) -> Any:
        return await self._written("reseed", reply_id, epoch, attempt, entries)

    async def _written(
        self, op: str, reply_id: str, epoch: int, attempt: int, entries: Sequence[Entry]
    ) -> Any:
        t0 = time.monotonic()
        write: Callable[..., Awaitable[Any]] = getattr(self._real, op)
        verdict = await write(reply_id, epoch, attempt, entries)
        numbers = [entry.seq for entry in entries] or [0]
        self._book.note(
            op, reply_id, epoch, t0,
            attempt=attempt, first=numbers[0], last=numbers[-1], verdict=str(verdict),
        )  # fmt: skip
        return verdict


def flag_some() -> None:
    """One answer in sixteen has a sentence that this process's check flags: see `FLAGGED`."""
    sound = RulesChecks.check_output

    async def check_output(self: RulesChecks, before: str, sentence: str) -> Verdict:
        if FLAGGED.search(before + sentence):
            return Verdict(flagged=True, category="chaos", text="This can't be shown.")
        return await sound(self, before, sentence)

    patch.object(RulesChecks, "check_output", check_output).start()


def watch(name: str, path: Path) -> None:
    """From now on this process's stores have a witness, and SIGUSR1 tells what it holds."""
    book = Notebook(name, path)
    real = wiring_stores._stores

    def witnessed(*args: Any, **kwargs: Any) -> Stores:
        made = real(*args, **kwargs)
        _tell_when_asked(name, book, asyncio.get_running_loop())
        return replace(made, queue=_Queue(made.queue, book), log=_Log(made.log, book))

    patch.object(wiring_stores, "_stores", witnessed).start()


def _kinds_of_fds() -> dict[str, int]:
    """What this process's descriptors lead to, for whoever looks for a leak."""
    kinds: Counter[str] = Counter()
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the listing's own is closed by now
            kinds[_kind_of(int(number))] += 1
    return dict(kinds)


def _kind_of(number: int) -> str:
    if not stat.S_ISSOCK(os.fstat(number).st_mode):
        return "no socket"
    with socket.socket(fileno=os.dup(number)) as end:
        try:
            peer = end.getpeername()
        except OSError:
            return "listening"
    return f"port {peer[1]}" if isinstance(peer, tuple) else "pair"


def _tell_when_asked(name: str, book: Notebook, loop: asyncio.AbstractEventLoop) -> None:
    def tell() -> None:
        status = dict(
            line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines()
        )
        book.write(
            {
                "rest": name,
                "at": time.monotonic(),
                "pid": os.getpid(),
                "fds": len(os.listdir("/proc/self/fd")),
                "kinds": _kinds_of_fds(),
                "tasks": len(asyncio.all_tasks(loop)),
                "rss_kb": int(status["VmRSS"].split()[0]),
            }
        )

    loop.add_signal_handler(signal.SIGUSR1, tell)
