"""The one pen that may write a reply's log: it numbers entries and carries the fence.

It never shows anything that the log has not taken, and once refused it writes no more. While the
log's store is away it waits: here all of the reply is safe as long as its claim is kept.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from tertulia.core.turn import delta_entry, ids_so_far, pack_ids, text_so_far
from tertulia.core.types import Append, Entry, Fenced, TokenIds, Turn
from tertulia.ports import Clock, Log, Queue, StoreUnavailable

# How much released text a check sees before the new sentence: harm split over two is seen.
_BEFORE_CHARS = 400

# A log that is lost again while it is being written again is a broken store, not bad luck.
_RESEEDS = 3
# A failover takes seconds. Giving up costs the reading of the whole prompt elsewhere, and the
# reader a reset if the log was lost; the renewal of the lease ends the wait if the claim is lost.
_PATIENCE_S = 10.0
_RETRY_S = 0.1


class Superseded(Exception):
    """Another claim owns the reply now: write nothing more, abort the sequence."""


class Pen:
    """Writes under one claim. Invariant: `entries` is exactly what the log holds.

    `ids` are the tokens of all released text, `before` is the end of that text.
    """

    def __init__(
        self, log: Log, queue: Queue, clock: Clock, turn: Turn, fenced: Fenced, *, lease_s: float
    ):
        self._log = log
        self._queue = queue
        self._clock = clock
        self._lease_s = lease_s
        is_known = turn.attempt == fenced.attempt
        self.turn = turn if is_known else turn._replace(attempt=fenced.attempt)
        self.entries: list[Entry] = list(fenced.entries)
        self.before = self.text[-_BEFORE_CHARS:]
        # Packed: a thousand replies are held here at once.
        self.ids = array("I", ids_so_far(fenced.entries))

    @property
    def text(self) -> str:
        """All released text."""
        return text_so_far(self.entries)

    @property
    def next_seq(self) -> int:
        return len(self.entries) + 1

    async def delta(self, text: str, ids: TokenIds) -> None:
        """Releases checked text; Superseded if another claim owns the reply."""
        await self.write(delta_entry(self.next_seq, text, pack_ids(ids)))
        self.before = (self.before + text)[-_BEFORE_CHARS:]
        self.ids.extend(ids)

    async def write(self, *entries: Entry) -> None:
        """Appends all entries or none; Superseded if another claim owns the reply.

        StoreUnavailable when the store stayed away; the entries may be in the log then.
        """
        assert [entry.seq for entry in entries] == [
            self.next_seq + n for n in range(len(entries))
        ], entries
        until = self._clock.now() + _PATIENCE_S
        reseeds = 0
        while reseeds < _RESEEDS:
            try:
                answer = await self._append(entries)
            except StoreUnavailable:
                if self._clock.now() >= until:
                    raise
                await self._clock.sleep(_RETRY_S)
                continue
            if answer is Append.DONE:
                self.entries.extend(entries)
                return
            if answer is Append.STALE:
                break
            reseeds += 1
        raise Superseded

    async def _append(self, entries: Sequence[Entry]) -> Append:
        """The log's answer, which is MISSING once more when all before was just written again."""
        held = (self.turn.reply_id, self.turn.epoch, self.turn.attempt)
        answer = await self._log.append(*held, entries)
        if answer is Append.MISSING:
            # Lost while its owner lives: write it again, if the store still says that we own it.
            if await self._queue.renew([self.turn.held], lease_s=self._lease_s):
                return Append.STALE
            if await self._log.reseed(*held, self.entries) is not Append.DONE:
                return Append.STALE
        return answer
