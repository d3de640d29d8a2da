"""Hands what the step thread produced to the request that waits for it on the event loop.

It must never block the step thread, and never hold more than one reply's tokens per request.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from tertulia.core.prefix import Forgotten
from tertulia.replica.engine import Engine
from tertulia.replica.generation import Emission, Generation
from tertulia.replica.metrics import ReplicaMetrics

ABORT_S = 10.0  # many steps; whoever waits longer than that waits for an engine that is stuck


class Ticket:
    """The right to read one reply. Whoever holds it iterates, and closes it whatever happens."""

    def __init__(
        self,
        box: asyncio.Queue[Emission],
        metrics: ReplicaMetrics,
        close: "CloseTicket",
    ) -> None:
        self._box = box
        self._metrics = metrics
        self._close = close
        self._finished = False

    async def emissions(self) -> AsyncIterator[list[Emission]]:
        """What the engine says, as much at once as is there, to the end."""
        while not self._finished:
            emissions = [await self._box.get()]
            while not self._box.empty():
                emissions.append(self._box.get_nowait())
            for emission in emissions:
                self._metrics.saw(emission)
            self._finished = emissions[-1].finish is not None
            yield emissions

    def close(self) -> None:
        """Gives the ticket back; a reply that is not finished is aborted."""
        self._close(finished=self._finished)


class CloseTicket(Protocol):
    """How a desk takes a ticket back."""

    def __call__(self, *, finished: bool) -> None: ...


class Desk:
    """The meeting point of one event loop and one engine."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Each box is bounded by the reply's own `max_tokens`.
        self._boxes: dict[int, asyncio.Queue[Emission]] = {}

    def deliver(self, emissions: list[Emission]) -> None:
        """Called in the step thread."""
        self.call_on_loop(lambda: self._hand_out(emissions))

    def call_on_loop(self, act: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(act)

    def submit(self, engine: Engine, metrics: ReplicaMetrics, generation: Generation) -> "Ticket":
        """Queues a request; what it produces is read from the ticket."""
        key = engine.submit(generation)
        box: asyncio.Queue[Emission] = asyncio.Queue()
        self._boxes[key] = box

        def close(*, finished: bool) -> None:
            del self._boxes[key]
            if not finished:
                engine.abort(lambda asked: asked is generation, lambda _n_left: None)

        return Ticket(box, metrics, close)

    async def abort(self, engine: Engine, ids: frozenset[str]) -> int:
        """Answers when the sequences with these ids have left the batch; gives their number."""
        left: asyncio.Future[int] = self._loop.create_future()

        def have_left(n_left: int) -> None:
            self.call_on_loop(lambda: None if left.done() else left.set_result(n_left))

        engine.abort(lambda asked: asked.id in ids, have_left)
        async with asyncio.timeout(ABORT_S):
            return await left

    async def forget(self, engine: Engine, salt: str, session: str | None) -> Forgotten:
        """Answers when no tier of the cache holds anything of the owner, or of one conversation."""
        reached: asyncio.Future[Forgotten] = self._loop.create_future()

        def have_forgotten(forgotten: Forgotten) -> None:
            self.call_on_loop(lambda: None if reached.done() else reached.set_result(forgotten))

        engine.forget(salt, session, have_forgotten)
        async with asyncio.timeout(ABORT_S):
            return await reached

    def _hand_out(self, emissions: list[Emission]) -> None:
        for emission in emissions:
            box = self._boxes.get(emission.key)
            if box is not None:
                box.put_nowait(emission)
