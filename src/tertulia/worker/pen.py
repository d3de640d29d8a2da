"""The one pen that may write a reply's log: it numbers entries and carries the fence.

It never shows anything that the log has not taken, and once refused it writes no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tertulia.core.turn import delta_entry, ids_so_far, pack_ids, text_so_far
from tertulia.core.types import Append, Entry, Fenced, TokenIds, Turn
from tertulia.ports import Log, Queue

# A log that is lost again while it is being written again is a broken store, not bad luck.
_RESEEDS = 3


class Superseded(Exception):
    """Another claim owns the reply now: write nothing more, abort the sequence."""


class Pen:
    """Writes under one claim. Invariant: `entries` is exactly what the log holds."""

    def __init__(self, log: Log, queue: Queue, turn: Turn, fenced: Fenced, *, lease_s: float):
        self._log = log
        self._queue = queue
        self._lease_s = lease_s
        self.turn = replace(turn, attempt=fenced.attempt)
        self.entries: list[Entry] = list(fenced.entries)
        self.text = text_so_far(fenced.entries)
        self.ids: list[int] = list(ids_so_far(fenced.entries))

    @property
    def next_seq(self) -> int:
        return len(self.entries) + 1

    async def delta(self, text: str, ids: TokenIds) -> None:
        """Releases checked text; Superseded if another claim owns the reply."""
        await self.write(delta_entry(self.next_seq, text, pack_ids(ids)))
        self.text += text
        self.ids.extend(ids)

    async def write(self, *entries: Entry) -> None:
        """Appends all entries or none; Superseded if another claim owns the reply."""
        assert [entry.seq for entry in entries] == [
            self.next_seq + n for n in range(len(entries))
        ], entries
        for _ in range(_RESEEDS):
            answer = await self._log.append(
                self.turn.reply_id, self.turn.epoch, self.turn.attempt, entries
            )
            if answer is Append.DONE:
                self.entries.extend(entries)
                return
            if answer is Append.STALE:
                break
            await self._reseed(self.entries)
        raise Superseded

    async def _reseed(self, entries: Sequence[Entry]) -> None:
        """The log was lost while its owner lives: write it again, if the store still says so."""
        held = (self.turn.reply_id, self.turn.epoch)
        if await self._queue.renew([held], lease_s=self._lease_s):
            raise Superseded
        answer = await self._log.reseed(
            self.turn.reply_id, self.turn.epoch, self.turn.attempt, entries
        )
        if answer is not Append.DONE:
            raise Superseded
