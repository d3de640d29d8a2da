"""Logs of replies in Valkey: each step is one script at the server, followers read from memory.

A log may be lost, whole or its end: its live owner writes it again, else another attempt begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from tertulia.backends.gaps import is_gapless
from tertulia.backends.tail_memory import TAIL_BYTES
from tertulia.backends.transitions import BURIED, BURIED_S
from tertulia.backends.valkey.client import Client
from tertulia.backends.valkey.entries import EntriesBroken, packed, unpacked
from tertulia.backends.valkey.scripts import script
from tertulia.backends.valkey.tails import Tails
from tertulia.core.turn import is_terminal
from tertulia.core.types import Append, Entry, Fenced, LogView
from tertulia.ports import StoreUnavailable

_FENCE: Final = script("fence")
_APPEND: Final = script("append")
_RESEED: Final = script("reseed")
_READ: Final = script("read")
_DROP: Final = script("drop")
_BURY: Final = script("bury")

# An open reply that nothing was added to for so long has no owner any more: it is ended as stale
# within minutes.
OPEN_KEPT_S: Final = 3600.0
# Entries between two renewals of that hour, which even the slowest reply makes within it: a renewal
# costs the server a fifth of an append.
_RENEWED_EVERY: Final = 32
# Logs dropped side by side: enough to share the round trip, few enough to leave room for appends.
_DROPPED_AT_ONCE: Final = 100
# A waiter whose log can't be read looks again after this.
_RETRY_S: Final = 0.1


class ValkeyLog:
    """The `Log` port. `kept_s`: how long a log can be read after its end. Every call ends after
    about `budget_s`, as StoreUnavailable if need be."""

    def __init__(
        self,
        client: Client,
        *,
        kept_s: float,
        budget_s: float,
        tail_bytes: int = TAIL_BYTES,
    ) -> None:
        self._client = client
        self._kept_ms = int(kept_s * 1000)
        self._budget_s = budget_s
        self._tails = Tails(client.feed, self._read, _channel, tail_bytes=tail_bytes)

    async def fence(self, reply_id: str, epoch: int, attempt: int) -> Fenced | None:
        """Takes the log for `epoch`, or None if a later one has it."""
        answer = await self._run(_FENCE, reply_id, epoch, attempt, _OPEN_KEPT_MS)
        if answer is None:
            return None
        attempt, last, batches = answer
        self._tails.fenced(reply_id, attempt, last)
        entries = _ending(batches, last)
        if len(entries) != last:
            # What can't be read is lost, and would be at every claim.
            return await self.fence(reply_id, epoch, attempt + 1)
        return Fenced(attempt, tuple(entries))

    async def append(
        self, reply_id: str, epoch: int, attempt: int, entries: Sequence[Entry]
    ) -> Append:
        """All entries or none, only for the holder of the fence and without a gap."""
        first, last = (entries[0].seq, entries[-1].seq) if entries else (0, 0)
        if entries and (first < 1 or not is_gapless(entries, first)):
            may = await self.append(reply_id, epoch, attempt, ())
            return Append.STALE if may is Append.DONE else may
        kept_ms = 0
        if entries and is_terminal(entries[-1].kind):
            kept_ms = self._kept_ms
        elif first == 1 or first // _RENEWED_EVERY != (last + 1) // _RENEWED_EVERY:
            kept_ms = _OPEN_KEPT_MS
        answer = await self._run(
            _APPEND, reply_id, epoch, attempt, first, last, packed(entries), kept_ms
        )
        if answer == b"done":
            self._tails.appended(reply_id, attempt, entries)
        return _APPENDS[answer]

    async def reseed(
        self, reply_id: str, epoch: int, attempt: int, entries: Sequence[Entry]
    ) -> Append:
        """Writes a log again that was lost, or that has lost its end."""
        if not is_gapless(entries, 1):
            return Append.STALE
        answer = await self._run(
            _RESEED, reply_id, epoch, attempt, len(entries), packed(entries), _OPEN_KEPT_MS
        )
        self._tails.changed(reply_id)
        return _APPENDS[answer]

    async def read(self, reply_id: str, after: int) -> LogView | None:
        """What is there now."""
        return await self._tails.view(reply_id, after, self._deadline())

    async def wait(self, reply_id: str, attempt: int, after: int, *, timeout_s: float) -> None:
        """Returns when there is something else than (`attempt`, `after`).

        While the server can't be reached nothing can be told: it waits on.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while (left := until - loop.time()) > 0:
            try:
                deadline = min(until, self._deadline())
                if await self._tails.differs(reply_id, attempt, after, deadline):
                    return
            except StoreUnavailable:
                left = min(left, _RETRY_S)
            else:
                left = until - loop.time()
            await self._tails.sleep(reply_id, timeout_s=left)
        self._tails.silent(reply_id)

    async def drop(
        self,
        *,
        older_than_s: float | None = None,  # noqa: ARG002 - the server's own clock ends those
        reply_ids: Sequence[str] = (),
    ) -> int:
        """Deletes the logs named. Those of finished turns end by themselves, `kept_s` after their
        last event was added."""
        return await self._each(_DROP, reply_ids)

    async def bury(self, reply_ids: Sequence[str]) -> None:
        """Removes logs for good: nobody, not even their live owner, can write them again."""
        await self._each(_BURY, reply_ids, BURIED, int(BURIED_S * 1000))

    async def _each(self, which: Any, reply_ids: Sequence[str], *words: int) -> int:
        todo = list(dict.fromkeys(reply_ids))
        count = 0
        for begin in range(0, len(todo), _DROPPED_AT_ONCE):
            some = todo[begin : begin + _DROPPED_AT_ONCE]
            count += sum(
                await asyncio.gather(*(self._run(which, reply_id, *words) for reply_id in some))
            )
            for reply_id in some:
                self._tails.changed(reply_id)
        return count

    async def _read(
        self, reply_id: str, attempt: int, after: int, deadline: float
    ) -> LogView | None:
        """What the server has: what is new after `after` of `attempt`, or all of it."""
        left = deadline - asyncio.get_running_loop().time()
        answer = await self._client.run(_READ, _keys(reply_id), attempt, after, budget_s=left)
        if answer is None:
            return None
        now, last, batches, in_doubt = answer
        if now != attempt or after > last:
            after = 0
        entries = _ending(batches, last)
        if not entries or entries[0].seq > after + 1:
            return LogView(now, last, (), bool(in_doubt)) if after == last else None
        return LogView(now, last, entries[after + 1 - entries[0].seq :], bool(in_doubt))

    async def _run(self, which: Any, reply_id: str, *words: str | bytes | int) -> Any:
        return await self._client.run(which, _keys(reply_id), *words, budget_s=self._budget_s)

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._budget_s


_OPEN_KEPT_MS: Final = int(OPEN_KEPT_S * 1000)
_APPENDS: Final = {answer.value.encode(): answer for answer in Append}


def _keys(reply_id: str) -> tuple[str, str]:
    """Head and entries; the braces keep both in one slot of a cluster."""
    return f"tertulia:log:{{{reply_id}}}", f"tertulia:entries:{{{reply_id}}}"


def _channel(reply_id: str) -> str:
    """Where the scripts publish: under the name of the head."""
    return f"tertulia:log:{{{reply_id}}}"


def _ending(batches: Sequence[Any], last: int) -> list[Entry]:
    """The entries of the batches at the end of a log; none if they can't be read as such."""
    try:
        return unpacked(b"".join(batch for _, (_, batch) in batches), last=last)
    except EntriesBroken:
        return []
