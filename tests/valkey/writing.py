"""An owner that writes a reply as a worker does, and a follower that reads it as a gateway does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from tertulia.backends.clock import SystemClock
from tertulia.backends.memory.queue import MemoryQueue
from tertulia.backends.memory.store import MemoryStore
from tertulia.core.types import Entry, Held, Lane, Sampling, Status, Turn
from tertulia.ports import Log, StoreUnavailable
from tertulia.worker.pen import Pen

CLOCK = SystemClock()
STARTED_AT = 1_796_000_000.0


class AlwaysHeld(MemoryQueue):
    """A queue that confirms every claim, and counts how often it was asked."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(CLOCK))
        self.asked = 0

    async def renew(self, held: Sequence[Held], *, lease_s: float) -> frozenset[Held]:
        self.asked += 1
        return frozenset()


def turn(reply_id: str, epoch: int, attempt: int) -> Turn:
    return Turn(
        owner="ana",
        key=reply_id,
        body_sha="sha",
        kind="message",
        reply_id=reply_id,
        plan="free",
        lane=Lane.FREE,
        requested="auto",
        answer_tokens=200,
        reserved=300,
        sampling=Sampling(),
        status=Status.RUNNING,
        epoch=epoch,
        attempt=attempt,
        created_at=STARTED_AT,
    )


async def take(log: Log, reply_id: str, *, epoch: int = 1, attempt: int = 1) -> Pen:
    """Fences the log and gives its holder's pen."""
    fenced = await log.fence(reply_id, epoch, attempt)
    assert fenced is not None
    return Pen(log, AlwaysHeld(), CLOCK, turn(reply_id, epoch, attempt), fenced, lease_s=2.0)


async def say(pen: Pen, *words: str) -> None:
    """Each word is an entry of its own."""
    for word in words:
        await pen.delta(word, (len(pen.ids), 7))


async def all_of(log: Log, reply_id: str) -> tuple[int, list[Entry]]:
    view = await log.read(reply_id, 0)
    assert view is not None
    return view.attempt, list(view.entries)


@dataclass
class Follower:
    """Follows like the gateway: what it has seen is by attempt and number.

    Nothing but news wakes it within `wait_s`, after which a log looks for itself.
    """

    log: Log
    reply_id: str
    wait_s: float = 60.0
    seen: dict[tuple[int, int], Entry] = field(default_factory=dict)
    attempt: int = 0
    last: int = 0
    outages: int = 0

    async def until(self, last: int, *, attempt: int = 1) -> None:
        """Returns once it has seen entry `last` of `attempt`."""
        while (self.attempt, self.last) < (attempt, last):
            try:
                view = await self.log.read(self.reply_id, self.last)
            except StoreUnavailable:
                self.outages += 1
                continue
            if view is not None and view.last and view.attempt != self.attempt:
                self.attempt, self.last = view.attempt, 0
                continue
            if view is not None and view.entries:
                for entry in view.entries:
                    assert entry.seq == self.last + 1
                    known = self.seen.setdefault((view.attempt, entry.seq), entry)
                    assert known == entry, "an id means the same bytes for ever"
                    self.last = entry.seq
                continue
            read = (view.attempt, view.last) if view is not None else (0, 0)
            await self.log.wait(self.reply_id, *read, timeout_s=self.wait_s)


async def soon(is_so: object, *, within_s: float = 20.0) -> None:
    """Returns once `is_so()`; for what a server tells only when it is asked."""
    assert callable(is_so)
    async with asyncio.timeout(within_s):
        while not is_so():  # noqa: ASYNC110 - a server tells only when it is asked
            await asyncio.sleep(0.01)
