"""Bugs planted on purpose: each breaks one rule of the turn protocol, and the checker must see it.

A checker that reports nothing on these is dead, whatever it says of the real code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from tertulia.backends.gaps import is_gapless
from tertulia.backends.memory import log as memory_log
from tertulia.backends.memory import queue as memory_queue
from tertulia.backends.memory import turns as memory_turns
from tertulia.backends.memory.log import MemoryLog
from tertulia.backends.memory.turns import MemoryTurns
from tertulia.backends.transitions import seized
from tertulia.core.turn import delta_entry, pack_ids
from tertulia.core.types import (
    Append,
    Entry,
    Fenced,
    GenerateRequest,
    Held,
    LogView,
    Outcome,
    Refusal,
    TokenIds,
    Turn,
)
from tertulia.worker import answer, speak
from tertulia.worker.pen import Pen


async def _append_without_fence(
    self: MemoryLog, reply_id: str, epoch: int, attempt: int, entries: Sequence[Entry]
) -> Append:
    reply = self._replies.get(reply_id)
    if reply is None:
        return Append.MISSING
    if reply.attempt != attempt or not is_gapless(entries, len(reply.entries) + 1):
        return Append.STALE
    reply.entries.extend(entries)
    self._sleepers.wake(reply_id)
    return Append.DONE


async def _append_without_numbers(
    self: MemoryLog, reply_id: str, epoch: int, attempt: int, entries: Sequence[Entry]
) -> Append:
    reply = self._replies.get(reply_id)
    if reply is None:
        return Append.MISSING
    if reply.fence != epoch or reply.attempt != attempt:
        return Append.STALE
    reply.entries.extend(entries)
    self._sleepers.wake(reply_id)
    return Append.DONE


async def _fence_as_if_nothing_were_lost(
    self: MemoryLog, reply_id: str, epoch: int, attempt: int
) -> Fenced | None:
    reply = self._replies.setdefault(reply_id, memory_log._Reply(epoch, attempt, self._origin))
    if epoch < reply.fence:
        return None
    reply.fence = epoch
    return Fenced(reply.attempt, tuple(reply.entries))


async def _append_what_is_left(
    self: MemoryLog, reply_id: str, epoch: int, attempt: int, entries: Sequence[Entry]
) -> Append:
    """The owner of a lost log goes on as if its old entries were still there."""
    if reply_id not in self._replies:
        self._replies[reply_id] = memory_log._Reply(epoch, attempt, self._origin, list(entries))
        self._sleepers.wake(reply_id)
        return Append.DONE
    return await _append_without_numbers(self, reply_id, epoch, attempt, entries)


async def _finish_and_settle_always(self: MemoryTurns, held: Held, outcome: Outcome) -> bool:
    done = await _FINISH(self, held, outcome)
    turn = self._store.turns.get(held.reply_id)
    if turn is not None and not done:
        now = self._store.clock.now()
        self._store.settle(turn._replace(epoch=held.epoch), outcome.usage, now)
    return done


async def _forget_keys(self: MemoryTurns, owner: str, key: str) -> Turn | None:
    return None


def _seize_without_epoch(turn: Turn, reason: str, now: float) -> Turn:
    return _SEIZED(turn, reason, now)._replace(epoch=max(1, turn.epoch))


def _held_for_ever(turn: Turn, now: float) -> bool:
    return turn.lease_until is not None


def _request_from_the_start(*args: Any) -> GenerateRequest:
    request = _REQUEST(*args)
    n_sent = len(args[0].ids)
    return replace(request, prompt=request.prompt[: len(request.prompt) - n_sent])


async def _release_unchecked(desk: Any, its_pen: Pen, piece: Any) -> Refusal | None:
    if piece is not None:
        await its_pen.delta(piece.text, piece.ids)
        verdict = await desk.checks.check_output(its_pen.text[-400:], piece.sentence)
        if verdict.flagged:
            return Refusal("output", verdict.category, verdict.text)
    return None


_FINISH: Final = MemoryTurns.finish
_SEIZED: Final = seized
_REQUEST: Final = answer._request
_READ: Final = MemoryLog.read
_DELTA: Final = Pen.delta


@contextmanager
def _send_before_append() -> Iterator[None]:
    """Followers are shown what a writer is about to append."""
    ahead: dict[str, tuple[int, Entry]] = {}

    async def delta(self: Pen, text: str, ids: TokenIds) -> None:
        entry = delta_entry(self.next_seq, text, pack_ids(ids))
        ahead[self.turn.reply_id] = (self.turn.attempt, entry)
        await _DELTA(self, text, ids)

    async def read(self: MemoryLog, reply_id: str, after: int) -> LogView | None:
        view = await _READ(self, reply_id, after)
        attempt, entry = ahead.get(reply_id, (0, None))
        if view is None or entry is None or view.attempt != attempt:
            return view
        if entry.seq != view.last + 1 or after > view.last:
            return view
        return LogView(view.attempt, entry.seq, (*view.entries, entry))

    with patch.object(Pen, "delta", delta), patch.object(MemoryLog, "read", read):
        yield


@contextmanager
def patched(*places: tuple[Any, str, Any]) -> Iterator[None]:
    """Each thing in its place, whose name there is given, while the block runs."""
    with ExitStack() as patches:
        for place in places:
            patches.enter_context(patch.object(*place))
        yield


# Name -> how to plant it.
MUTANTS: Final[dict[str, Callable[[], Any]]] = {
    "no fence in append": lambda: patched((MemoryLog, "append", _append_without_fence)),
    "no numbers in append": lambda: patched((MemoryLog, "append", _append_without_numbers)),
    "sent before appended": _send_before_append,
    "settled whoever finishes": lambda: patched((MemoryTurns, "finish", _finish_and_settle_always)),
    "stop without a new epoch": lambda: patched((memory_turns, "seized", _seize_without_epoch)),
    "lost log ignored by its heir": lambda: patched(
        (MemoryLog, "fence", _fence_as_if_nothing_were_lost)
    ),
    "a failover believed to be whole": lambda: patched(
        (MemoryLog, "_in_doubt", lambda _self, _reply: False)
    ),
    "lost log not written again": lambda: patched((MemoryLog, "append", _append_what_is_left)),
    "released before the check": lambda: patched((speak, "_release", _release_unchecked)),
    "keys are not unique": lambda: patched((MemoryTurns, "find_by_key", _forget_keys)),
    "a lease never ends": lambda: patched((memory_queue, "_is_held", _held_for_ever)),
    "sent tokens forgotten": lambda: patched((answer, "_request", _request_from_the_start)),
}
