"""How a process is asked to end: SIGTERM or SIGINT, once for good order, twice for at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Collection
from typing import Self

# A role ends with this status when another start would end the same way.
CANT_START = 3


class Leaving:
    """Whether it has been asked to end, and whether whoever asked has lost patience."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self._at_once = asyncio.Event()

    @classmethod
    def at_signals(cls) -> Self:
        """One that takes the two signals from now on, in the running loop."""
        leaving = cls()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, leaving.ask)
        return leaving

    def ask(self) -> None:
        """Once it lets things end, twice it does not."""
        (self._at_once if self.asked.is_set() else self.asked).set()

    async def grace(self, seconds: float, until: Collection[asyncio.Task[None]] = ()) -> None:
        """Returns after `seconds`, when asked a second time, or when one of the tasks is done."""
        async with asyncio.TaskGroup() as tasks:
            hurried = tasks.create_task(_wait(self._at_once))
            await asyncio.wait(
                {hurried, *until}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            hurried.cancel()


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
