"""One streamed completion over a connection of its own, each token with the time it came.

It must cost next to nothing: the engine under test has all cores.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httptools

ANSWER_S = 300.0  # an engine that is silent for longer has failed
DATA, END = b"data: ", b"\n\n"


@dataclass(frozen=True)
class Piece:
    """What one event of a stream said."""

    ids: tuple[int, ...] = ()
    n_cached: int | None = None


@dataclass
class Answer:
    """A whole reply; times are seconds on the client's clock, one for each token."""

    sent_s: float
    token_s: list[float] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    n_prompt: int = 0
    n_cached: int = 0
    n_lost: int = 0  # tokens without ids: pieces of a character that came only in part

    @property
    def ttft_s(self) -> float:
        return self.token_s[0] - self.sent_s

    @property
    def gaps_s(self) -> list[float]:
        return [b - a for a, b in pairwise(self.token_s)]


class Failed(RuntimeError):
    """The engine refused the request or broke off."""


class Stream(asyncio.Protocol):
    """A request under way. `closed` is done when the connection has ended, for whatever reason."""

    def __init__(self, request: bytes, read: Callable[[dict[str, Any]], Piece]) -> None:
        loop = asyncio.get_running_loop()
        self.answer = Answer(sent_s=0.0)
        self.closed: asyncio.Future[None] = loop.create_future()
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []
        self._request = request
        self._read = read
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._now_s = 0.0
        self._complete = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.answer.sent_s = time.perf_counter()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._now_s = time.perf_counter()
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.closed.done():
            return
        if exc is not None or not self._complete:
            self._fail(f"the stream broke off: {exc or self._rest[:300]!r}")
            return
        self.closed.set_result(None)

    def on_body(self, body: bytes) -> None:
        """Called by the parser, with the chunks' framing taken off."""
        events = (self._rest + body).split(END)
        self._rest = events.pop()
        for event in events:
            if event.startswith(DATA) and not event.endswith(b"[DONE]"):
                self._take(self._read(json.loads(event[len(DATA) :])))

    def on_message_complete(self) -> None:
        """Called by the parser at the end of the answer."""
        self._complete = self._parser.get_status_code() == 200
        self.close()

    def reached(self, n_tokens: int) -> asyncio.Future[None]:
        """Done when so many tokens have come."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited.append((n_tokens, future))
        self._tell()
        return future

    def close(self) -> None:
        """Ends the request; an engine stops computing for a client that has gone."""
        if self._transport is not None:
            self._transport.close()

    def _take(self, piece: Piece) -> None:
        if piece.ids:
            self.answer.ids += piece.ids
            self.answer.token_s += [self._now_s] * len(piece.ids)
            self._tell()
        if piece.n_cached is not None:
            self.answer.n_cached = piece.n_cached

    def _tell(self) -> None:
        n_tokens = len(self.answer.ids)
        for wanted, future in self._awaited:
            if wanted <= n_tokens and not future.done():
                future.set_result(None)

    def _fail(self, why: str) -> None:
        for future in (self.closed, *(future for _, future in self._awaited)):
            if not future.done():
                future.set_exception(Failed(why))
                future.exception()  # seen: whoever waits for one of them raises it
