"""Virtual time: an event loop whose clock jumps to the next timer when nothing else can run.

It does no I/O and its order depends on nothing but the program: one seed gives one run.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Generator, Sequence
from typing import Any, Final, TypeVar

T = TypeVar("T")

# Turns of the loop within one virtual moment: more is a loop of ours that waits for nothing.
SPIN_LIMIT: Final = 20_000
# When virtual worlds begin: an ordinary morning, far from midnight, so that no budget resets.
DAWN: Final = 1_790_000_000.0


class Deadlock(Exception):
    """Nothing can run and no timer is set: the program waits for something that can't come."""


class Spinning(Exception):
    """The program goes round without letting time pass."""


class OutOfBounds(Exception):
    """The run took more steps or more virtual time than it may."""


class _Future(asyncio.Future[Any]):
    """A future that hashes by its number: sets of futures are walked in the same order each run."""

    def __init__(self, *, loop: VirtualLoop) -> None:
        super().__init__(loop=loop)
        self._number = loop.next_number()

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class _Task(asyncio.Task[T]):
    """The same for tasks, which task groups keep in sets."""

    def __init__(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        loop: VirtualLoop,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> None:
        # Before the base class, which already puts the task into a set.
        self._number = loop.next_number()
        super().__init__(coro, loop=loop, name=name, context=context)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's own loop, on a clock that moves only when nothing is ready."""

    def __init__(self, *, max_steps: int, max_time_s: float) -> None:
        self._now = 0.0
        self._numbers = 0
        self._spins = 0
        self.steps = 0
        self._max_steps = max_steps
        self._max_time_s = max_time_s
        super().__init__()
        self._clock_resolution = 1e-9
        self._selector = self
        self.set_task_factory(_make_task)

    def time(self) -> float:
        return self._now

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def forget_bounds(self) -> None:
        """For the end of a run that failed: it may take what it needs."""
        self._max_steps, self._max_time_s, self._spins = self.steps + 1_000_000, 1e9, 0

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def select(self, timeout: float | None) -> Sequence[Any]:
        """What a selector does for a real loop: here waiting is a jump."""
        self.steps += 1
        if timeout is None:
            raise Deadlock(f"at {self._now:.3f}s")
        if timeout > 0:
            scheduled: list[asyncio.TimerHandle] = self.__dict__["_scheduled"]
            self._now = max(self._now, scheduled[0].when())
            self._spins = 0
        self._spins += 1
        if self._spins > SPIN_LIMIT:
            raise Spinning(f"at {self._now:.3f}s: {self._running()}")
        if self.steps > self._max_steps or self._now > self._max_time_s:
            raise OutOfBounds(f"{self.steps} steps, {self._now:.1f}s: {self._running()}")
        return ()

    def _process_events(self, event_list: Sequence[Any]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector, so nobody need be woken."""

    def _running(self) -> str:
        return ", ".join(sorted(task.get_name() for task in asyncio.all_tasks(self))[:12])


def _make_task(
    loop: asyncio.AbstractEventLoop,
    coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
    context: contextvars.Context | None = None,
) -> asyncio.Future[T]:
    assert isinstance(loop, VirtualLoop)
    return _Task(coro, loop=loop, context=context)


class VirtualClock:
    """The `Clock` port on the loop's time."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        return DAWN + self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))
