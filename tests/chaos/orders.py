"""Orders to a process with an event loop: JSON objects over a Unix socket, each answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

Handler = Callable[[dict[str, Any]], Awaitable[Any]]

_OPEN_S: Final = 30.0
_LOOK_S: Final = 0.02


async def obey(path: Path, handler: Handler) -> asyncio.Server:
    """Takes orders from now on; an order that is not understood ends its connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                answer = await handler(json.loads(line))
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        finally:
            writer.close()

    return await asyncio.start_unix_server(serve, str(path))


@dataclass(slots=True)
class Line:
    """The giver's end: one order after the other."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def order(self, **order: Any) -> Any:
        """The answer, when the order has been carried out."""
        async with self._turn:
            self.writer.write(json.dumps(order).encode() + b"\n")
            await self.writer.drain()
            line = await self.reader.readline()
            assert line, f"no answer to {order}"
            return json.loads(line)

    async def close(self) -> None:
        """Hangs up, whether the other end is still there or not."""
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


async def reach(path: Path) -> Line:
    """A line to the process that obeys at `path`, as soon as it does."""
    async with asyncio.timeout(_OPEN_S):
        while True:
            try:
                return Line(*await asyncio.open_unix_connection(str(path)))
            except (FileNotFoundError, ConnectionRefusedError):
                await asyncio.sleep(_LOOK_S)
