"""One process of a throw-away fleet: started, killed, frozen and started again from here.

It must never outlive the program that started it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path

# A role that was asked to end and has not ended after this is killed: longer than its own graces.
_END_S = 20.0
_LOG_TAIL_BYTES = 2_000


def tertulia(*arguments: str) -> list[str]:
    """A command of ours that ends with this process, however this one ends."""
    return [sys.executable, "-m", "tertulia", *arguments, "--die-with-parent", str(os.getpid())]


@dataclass(slots=True)
class Role:
    """A command. A restart has the same arguments, and so the same port."""

    name: str
    command: list[str]
    log: Path
    url: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    process: asyncio.subprocess.Process | None = None

    @property
    def is_up(self) -> bool:
        """Whether the process is there; not whether it is ready."""
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
        """Starts it, unless it is up."""
        if self.is_up:
            return
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.PIPE,  # held open: some programs end with their reader
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                # Its own group: Ctrl-C is for the drill, which then ends everything in order.
                start_new_session=True,
            )

    async def kill(self) -> None:
        """SIGKILL, for its own children as well; returns when it is gone."""
        if self.process is not None and self.is_up:
            self._signal(signal.SIGKILL)
            await self.process.wait()

    async def end(self) -> int:
        """SIGTERM, and its exit status once it is gone; what does not end is killed."""
        process = self.process
        assert process is not None, self.name
        if self.is_up:
            process.terminate()
            try:
                async with asyncio.timeout(_END_S):
                    await process.wait()
            except TimeoutError:
                await self.kill()
        assert process.returncode is not None
        return process.returncode

    def freeze(self) -> None:
        """SIGSTOP: it is there and does nothing, as a machine that is swapping."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def last_words(self) -> str:
        """The end of its log, for a person who wants to know why it did not start."""
        return self.log.read_bytes()[-_LOG_TAIL_BYTES:].decode("utf-8", "replace")

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None, self.name
        os.killpg(self.process.pid, number)  # an engine may have begun a session of several
