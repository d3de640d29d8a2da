"""A relay between clients and a server that can go deaf without a word, as a cut cable does."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from types import TracebackType
from typing import Self


class Proxy:
    """Relays connections to a port until `deaf`; then nothing passes, and nobody is told. What was
    connected then stays deaf. With `tls` its clients speak TLS."""

    def __init__(self, to_port: int, *, tls: ssl.SSLContext | None = None) -> None:
        self._to_port = to_port
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: list[asyncio.StreamWriter] = []
        self.deaf = False
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for end in self._ends:
            end.transport.abort()

    @property
    def url(self) -> str:
        return f"valkey://127.0.0.1:{self.port}"

    async def _relay(self, near: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        far, far_out = await asyncio.open_connection("127.0.0.1", self._to_port)
        self._ends += (near_out, far_out)
        for pair in ((near, far_out), (far, near_out)):
            task = asyncio.get_running_loop().create_task(self._copy(*pair))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                if self.deaf:
                    return
                target.write(data)
                await target.drain()
            target.close()
