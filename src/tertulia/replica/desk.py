"""Hands what the step thread produced to the request that waits for it on the event loop.

It must never block the step thread, never hold more than one reply's tokens per request, and never
lose count of what was produced for a reader who left.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from tertulia.core.prefix import Forgotten
from tertulia.replica.engine import Engine
from tertulia.replica.generation import Emission, Generation
from tertulia.replica.metrics import ReplicaMetrics
from tertulia.replica.usage import UsageLog

ABORT_S = 10.0  # many steps; whoever waits longer than that waits for an engine that is stuck


class Ticket:
    """The right to read one reply. Whoever holds it iterates, and closes it whatever happens."""

    def __init__(self, box: asyncio.Queue[Emission], leave: Callable[[], None]) -> None:
        self._box = box
        self._leave = leave
        self._finished = False

    async def emissions(self) -> AsyncIterator[list[Emission]]:
        """What the engine says, as much at once as is there, to the end."""
        while not self._finished:
            emissions = [await self._box.get()]
            while not self._box.empty():
                emissions.append(self._box.get_nowait())
            self._finished = emissions[-1].finish is not None
            yield emissions

    def close(self) -> None:
        """Gives the ticket back; a reply that is not finished is aborted."""
        if not self._finished:
            self._leave()


@dataclass
class _Open:
    """One request inside the engine, whether or not somebody still reads its reply."""

    box: asyncio.Queue[Emission] | None  # None: the reader has left
    metrics: ReplicaMetrics


class Desk:
    """The meeting point of one event loop and one engine."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.uses = UsageLog()
        # As many as the engine lets in; each box is bounded by the reply's own `max_tokens`.
        self._open: dict[int, _Open] = {}

    def deliver(self, emissions: list[Emission]) -> None:
        """Called in the step thread."""
        self.call_on_loop(lambda: self._hand_out(emissions))

    def call_on_loop(self, act: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(act)

    def submit(self, engine: Engine, metrics: ReplicaMetrics, generation: Generation) -> Ticket:
        """Queues a request; what it produces is read from the ticket."""
        key = engine.submit(generation)
        box: asyncio.Queue[Emission] = asyncio.Queue()
        self._open[key] = opened = _Open(box, metrics)
        self.uses.begin(key, generation.id, len(generation.prompt))

        def leave() -> None:
            opened.box = None
            if key in self._open:
                engine.abort(lambda asked: asked is generation, lambda _n_left: None)

        return Ticket(box, leave)

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
            opened = self._open[emission.key]
            n_new = len(emission.tokens)
            opened.metrics.saw(emission)
            self.uses.add(emission.key, n_new, emission.n_cached, emission.finish)
            if opened.box is not None:
                opened.box.put_nowait(emission)
            if emission.finish is not None:
                del self._open[emission.key]
