"""Forgets turns of no conversation some minutes after their end: first their words, in the store,
and then what engines have cached of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from tertulia.ports import StoreUnavailable
from tertulia.worker.desk import WorkerDesk

_log = structlog.get_logger(__name__)

# They are kept for minutes, and the look touches an index.
_EVERY_S: Final = 30.0
# Turns forgotten in one step, some milliseconds of the store, and steps of one round. What is left
# comes in the next: so far it is a hundred a second that a store forgets.
_FORGOTTEN_AT_ONCE: Final = 100
_STEPS: Final = 30
# Engines answer between two of their steps. Those that are not asked within this time keep what
# they have until others need the room, out of everybody else's reach: the next round must come.
_ASKING_S: Final = 20.0
_ASKED_AT_ONCE: Final = 16


async def forget_loose_turns(desk: WorkerDesk) -> None:
    """Runs until cancelled."""
    while True:
        await desk.clock.sleep(_EVERY_S)
        try:
            await forget_loose(desk)
        except StoreUnavailable:
            _log.warning("forgetting_interrupted", cause="store_unavailable")


async def forget_loose(desk: WorkerDesk) -> None:
    """Of a turn without a conversation nothing is left but its numbers, once its log is gone; and
    of its cache nothing, once no turn of its thread is left."""
    threads: list[tuple[str, str]] = []
    for _ in range(_STEPS):
        gone = await desk.loose.forget(ended_s=desk.rules.log_kept_s, limit=_FORGOTTEN_AT_ONCE)
        threads += [(one.owner, one.thread) for one in gone if one.is_last]
        if len(gone) < _FORGOTTEN_AT_ONCE:
            break
    with suppress(TimeoutError):
        async with asyncio.timeout(_ASKING_S):
            await _ask_engines(desk, threads)


async def _ask_engines(desk: WorkerDesk, threads: Sequence[tuple[str, str]]) -> None:
    """To forget these. One in which somebody goes on at this very moment is read once more."""
    for first in range(0, len(threads), _ASKED_AT_ONCE):
        async with asyncio.TaskGroup() as asking:
            for owner, thread in threads[first : first + _ASKED_AT_ONCE]:
                asking.create_task(_ask(desk, owner, thread))


async def _ask(desk: WorkerDesk, owner: str, thread: str) -> None:
    await desk.replicas.forget(owner, thread)
