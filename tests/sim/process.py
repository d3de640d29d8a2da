"""A simulated process: tasks that can be stopped all at once (SIGSTOP) or ended for good (kill -9).

Everything that a process awaits passes its gate: frozen, it gets no further; dead, it never acts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.sim.virtual import VirtualLoop

Report = Callable[[str, str], None]


class Process:
    """One incarnation. A restarted process is another one."""

    def __init__(self, name: str, loop: VirtualLoop, report: Report) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self._loop = loop
        self._report = report
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._frozen: dict[asyncio.Future[None], None] = {}
        # What the other ends of this process's connections do when it dies.
        self.at_death: dict[Callable[[], None], None] = {}

    async def gate(self) -> None:
        """Passed only by a living process that may run."""
        if not self.alive:
            raise asyncio.CancelledError
        while self.frozen:
            thawed = self._loop.create_future()
            self._frozen[thawed] = None
            try:
                await thawed
            finally:
                self._frozen.pop(thawed, None)
        if not self.alive:
            raise asyncio.CancelledError

    def spawn(self, coro: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """A task of this process; one that fails is reported."""
        assert self.alive, self.name
        task = self._loop.create_task(self._gated(coro), name=f"{self.name}/{name}")
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    async def _gated(self, coro: Coroutine[Any, Any, Any]) -> Any:
        try:
            await self.gate()
        except asyncio.CancelledError:
            coro.close()
            raise
        return await coro

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        self.frozen = False
        for thawed in list(self._frozen):
            if not thawed.done():
                thawed.set_result(None)

    def kill(self) -> None:
        """No call of this incarnation takes effect any more; what is on the wire may arrive."""
        self.alive = False
        self.frozen = False
        for act in list(self.at_death):
            act()
        for task in list(self._tasks):
            task.cancel()

    async def quit(self) -> None:
        """A clean end (SIGTERM): tasks are cancelled and may still do their last work."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=10)
        if self.alive:
            self.kill()  # what did not end in time, and the other ends of its connections

    @property
    def running(self) -> list[str]:
        """Names of tasks that have not ended."""
        return [task.get_name() for task in self._tasks]

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._report("crash", f"{task.get_name()}: {describe(error)}")


def describe(error: BaseException) -> str:
    """An error and where it was raised, on one line."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(describe(inner) for inner in error.exceptions)
    place, trace = "", error.__traceback__
    while trace is not None:
        place = f"{trace.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error} ({place})"
