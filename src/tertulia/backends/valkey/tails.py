"""The ends of the logs that are followed here, in memory: fed by what is published, read again
from the server whenever something may have been missed.

It holds nothing that the log did not hold, and any of it can be dropped.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from tertulia.backends.bell import Sleepers
from tertulia.backends.tail_memory import TAIL_BYTES, size_of
from tertulia.backends.valkey.entries import EntriesBroken, unpacked
from tertulia.backends.valkey.feed import Feed
from tertulia.core.types import Entry, LogView
from tertulia.ports import StoreUnavailable

_TAIL_BYTES: Final = 2000  # a tail's own objects and its subscription, here and at the server
# A follower looks once a second: a tail that nobody looked at for so long has none.
_UNREAD_S: Final = 30.0


class Read(Protocol):
    """Asks the server for a log. The view's entries are those after `after` if it is still this
    attempt and holds as many, else all."""

    async def __call__(
        self, reply_id: str, attempt: int, after: int, deadline: float
    ) -> LogView | None: ...


@dataclass(slots=True)
class _Tail:
    """A log as it is known here. Invariant: while `live`, nothing that was published since it was
    read is missing, and whatever will be published will be heard."""

    attempt: int = 0  # 0: there is no log
    entries: list[Entry] = field(default_factory=list)
    in_doubt: bool = False
    live: bool = False
    size: int = 0
    read_at: float = 0.0
    n_heard: int = 0
    heard: tuple[int, int] | None = None  # attempt and last number of the newest message, if known


class Tails:
    """Tails of the replies that somebody follows. It belongs to one event loop."""

    def __init__(
        self,
        feed: Feed,
        read: Read,
        channel: Callable[[str], str],
        *,
        tail_bytes: int = TAIL_BYTES,
    ) -> None:
        self._feed = feed
        self._read = read
        self._channel = channel
        self._tail_bytes = tail_bytes
        self._size = 0
        self._tails: OrderedDict[str, _Tail] = OrderedDict()
        self._sleepers = Sleepers()

    async def view(self, reply_id: str, after: int, deadline: float) -> LogView | None:
        """What is there now; StoreUnavailable if that can't be known by `deadline`."""
        tail = self._at_hand(reply_id) or await self._live(reply_id, deadline)
        if after > len(tail.entries):
            # Its reader has seen more elsewhere, where news came sooner.
            tail.live = False
            tail = await self._live(reply_id, deadline)
        if not tail.attempt:
            return None
        more = tail.entries[max(0, after) :]
        return LogView(tail.attempt, len(tail.entries), more, tail.in_doubt)

    async def differs(self, reply_id: str, attempt: int, after: int, deadline: float) -> bool:
        """Whether there is something else than (`attempt`, `after`)."""
        tail = self._at_hand(reply_id) or await self._live(reply_id, deadline)
        if not tail.attempt:
            return after > 0
        return tail.attempt != attempt or len(tail.entries) != after

    async def sleep(self, reply_id: str, *, timeout_s: float) -> None:
        """Returns when the log may have changed, or after `timeout_s`."""
        await self._sleepers.sleep(reply_id, timeout_s=timeout_s)

    def appended(self, reply_id: str, attempt: int, entries: Sequence[Entry]) -> None:
        """Entries that this process has just added: its own followers needn't wait for the news."""
        tail = self._tails.get(reply_id)
        if tail is not None and tail.live and entries:
            self._go_on(reply_id, tail, attempt, entries)

    def fenced(self, reply_id: str, attempt: int, last: int) -> None:
        """This process has taken the log, which it found so."""
        tail = self._tails.get(reply_id)
        if tail is None or tail.attempt == attempt:
            return
        if tail.live and not last:
            self._begin(reply_id, tail, attempt)
        else:
            self._doubt(reply_id, tail)

    def changed(self, reply_id: str) -> None:
        """This process has changed the log in another way: whoever reads asks the server."""
        tail = self._tails.get(reply_id)
        if tail is not None:
            self._doubt(reply_id, tail)

    def silent(self, reply_id: str) -> None:
        """Nothing was heard for long: the next reader asks whether news was lost on its way."""
        tail = self._tails.get(reply_id)
        if tail is not None:
            tail.live = False

    def _at_hand(self, reply_id: str) -> _Tail | None:
        """The tail if it can be read as it is: nearly always, on the way of each event."""
        tail = self._tails.get(reply_id)
        if tail is None or not tail.live:
            return None
        tail.read_at = asyncio.get_running_loop().time()
        self._tails.move_to_end(reply_id)
        return tail

    async def _live(self, reply_id: str, deadline: float) -> _Tail:
        loop = asyncio.get_running_loop()
        while True:
            tail = self._tails.get(reply_id)
            if tail is None:
                self._leave_unread(loop.time())
                tail = self._tails[reply_id] = _Tail()
                self._grow(tail, _TAIL_BYTES)
            tail.read_at = loop.time()
            self._tails.move_to_end(reply_id)
            if tail.live:
                return tail
            await self._feed.join(
                self._channel(reply_id),
                deadline,
                heard=partial(self._heard, reply_id),
                broken=partial(self._drop, reply_id),
            )
            n_heard, attempt, after = tail.n_heard, tail.attempt, len(tail.entries)
            view = await self._read(reply_id, attempt, after, deadline)
            if self._tails.get(reply_id) is not tail or tail.live:
                continue
            if (attempt, after) != (tail.attempt, len(tail.entries)):
                continue
            # A message that came meanwhile may tell of something before the read, or after it.
            if tail.n_heard == n_heard or _covers(view, tail.heard):
                self._fill(reply_id, tail, view)
                return tail
            if loop.time() >= deadline:
                raise StoreUnavailable("the log changes faster than it can be read")

    def _fill(self, reply_id: str, tail: _Tail, view: LogView | None) -> None:
        tail.live = True
        tail.in_doubt = view is not None and view.in_doubt
        if view is not None and view.attempt == tail.attempt and view.last >= len(tail.entries):
            more = view.entries
        else:
            self._grow(tail, -size_of(tail.entries))
            tail.attempt = view.attempt if view is not None else 0
            tail.entries = []
            more = view.entries if view is not None else ()
        tail.entries += more
        self._grow(tail, size_of(more))
        self._sleepers.wake(reply_id)

    def _heard(self, reply_id: str, message: bytes) -> None:
        tail = self._tails.get(reply_id)
        if tail is None:
            return
        head, _, batch = message.partition(b"\n")
        if not head:
            self._doubt(reply_id, tail)  # dropped, or written again
            return
        attempt, last = map(int, head.split(b" "))
        if attempt == tail.attempt and last <= len(tail.entries):
            return  # known already: read, or added here
        tail.n_heard += 1
        tail.heard = (attempt, last)
        if not tail.live:
            self._sleepers.wake(reply_id)
            return
        if not last:
            self._begin(reply_id, tail, attempt)
            return
        try:
            self._go_on(reply_id, tail, attempt, unpacked(batch, last=last))
        except EntriesBroken:
            self._doubt(reply_id, tail)

    def _begin(self, reply_id: str, tail: _Tail, attempt: int) -> None:
        """A log was made, with nothing in it. Attempts only grow: an older one is old news."""
        if attempt <= tail.attempt:
            self._doubt(reply_id, tail)
            return
        self._grow(tail, -size_of(tail.entries))
        tail.attempt, tail.entries, tail.in_doubt = attempt, [], False
        self._sleepers.wake(reply_id)

    def _go_on(self, reply_id: str, tail: _Tail, attempt: int, entries: Sequence[Entry]) -> None:
        """Adds entries that follow; what is known already is nothing new, else news was missed."""
        first, last = entries[0].seq, entries[-1].seq
        if attempt == tail.attempt and first == len(tail.entries) + 1:
            tail.entries += entries
            self._grow(tail, size_of(entries))
            self._sleepers.wake(reply_id)
        elif attempt != tail.attempt or last > len(tail.entries):
            self._doubt(reply_id, tail)

    def _doubt(self, reply_id: str, tail: _Tail) -> None:
        """The log may have changed in any way: the next reader asks the server."""
        tail.live = False
        tail.n_heard += 1
        tail.heard = None
        self._sleepers.wake(reply_id)

    def _drop(self, reply_id: str) -> None:
        tail = self._tails.pop(reply_id, None)
        if tail is not None:
            self._size -= tail.size
            tail.size = 0
            self._sleepers.wake(reply_id)

    def _grow(self, tail: _Tail, added: int) -> None:
        tail.size += added
        self._size += added
        # The newest stays, however large: somebody is about to sleep on it.
        while self._size > self._tail_bytes and len(self._tails) > 1:
            self._leave(next(iter(self._tails)))

    def _leave_unread(self, now: float) -> None:
        while self._tails:
            reply_id, tail = next(iter(self._tails.items()))
            if now - tail.read_at < _UNREAD_S:
                return
            self._leave(reply_id)

    def _leave(self, reply_id: str) -> None:
        self._feed.leave(self._channel(reply_id))
        self._drop(reply_id)


def _covers(view: LogView | None, heard: tuple[int, int] | None) -> bool:
    return view is not None and heard is not None and (view.attempt, view.last) >= heard
