"""A line between browser and service that can be cut and mended: a network that really breaks.

Chromium's own offline switch refuses new requests and lets a running answer flow on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Line:
    """Forwards connections to a port of this machine until it is cut."""

    def __init__(self, port: int):
        self._to = port
        self._whole = True
        self._open: set[asyncio.StreamWriter] = set()
        self.url = ""

    def cut(self) -> None:
        """Resets every connection, and every new one."""
        self._whole = False
        for writer in self._open:
            writer.transport.abort()

    def mend(self) -> None:
        self._whole = True

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, both ways, until either side ends it."""
        if not self._whole:
            writer.transport.abort()
            return
        there = writer
        try:
            back, there = await asyncio.open_connection("127.0.0.1", self._to)
            self._open |= {writer, there}
            async with asyncio.TaskGroup() as ways:
                ways.create_task(_flow(reader, there))
                ways.create_task(_flow(back, writer))
        except (OSError, ExceptionGroup):
            pass  # cut, or the service is away: both sides are ended below
        finally:
            for end in (writer, there):
                self._open.discard(end)
                end.transport.abort()


async def _flow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError  # the other direction ends with this one


@contextlib.asynccontextmanager
async def line_to(port: int) -> AsyncIterator[Line]:
    """A line to `port`, on a port of its own."""
    line = Line(port)
    server = await asyncio.start_server(line.carry, "127.0.0.1", 0)
    line.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield line
    finally:
        server.close()
        line.cut()
        await server.wait_closed()
