"""What the end of a turn and the passing of time mean for logs, where one clock rules both."""

from __future__ import annotations

import asyncio

import pytest

from tertulia.core.types import Append
from tests.conformance.world import (
    WITH_LOGS,
    Backend,
    ManualClock,
    admitted,
    claimed,
    completed,
    entries,
    stateless,
)

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", WITH_LOGS, indirect=True)]

LONG_S = 50.0  # a test that waits so long has failed
PROMPT_S = 20.0


async def test_logs_are_dropped_by_when_their_turn_finished(
    backend: Backend, clock: ManualClock
) -> None:
    for n in (1, 2, 3):
        await admitted(backend, stateless(n))
        held = await claimed(backend, skip=tuple(f"m_r{earlier}" for earlier in range(1, n)))
        await backend.log.fence(f"m_r{n}", held.epoch, 1)
        await backend.queue.release([held.held])
    await _finish(backend, "m_r1")
    clock.pass_(600)
    await _finish(backend, "m_r2")
    assert await backend.log.drop(older_than_s=600) == 1
    assert await backend.log.read("m_r1", 0) is None
    assert await backend.log.read("m_r2", 0) is not None
    assert await backend.log.drop(older_than_s=0) == 1
    assert await backend.log.read("m_r3", 0) is not None  # its turn is open
    assert await backend.log.drop(reply_ids=["m_r1", "m_r3", "m_unknown"]) == 1
    assert await backend.log.drop() == 0


async def test_a_buried_log_refuses_every_writer(backend: Backend, clock: ManualClock) -> None:
    await backend.log.fence("m_r1", 1, 1)
    await backend.log.append("m_r1", 1, 1, entries(1, 2))
    waiting = asyncio.create_task(backend.log.wait("m_r1", 1, 2, timeout_s=LONG_S))
    await backend.log.bury(["m_r1", "m_r2"])  # the second was never there
    await backend.log.bury([])
    async with asyncio.timeout(PROMPT_S):
        await waiting
    for later in (0, 3590):
        clock.pass_(later)
        await backend.log.drop(older_than_s=0)
        await backend.log.drop(reply_ids=["m_r1", "m_r2"])
        for reply_id in ("m_r1", "m_r2"):
            assert await backend.log.append(reply_id, 1, 1, entries(3, 3)) is Append.STALE
            assert await backend.log.reseed(reply_id, 1, 1, entries(1, 3)) is Append.STALE
            assert await backend.log.fence(reply_id, 9, 1) is None
            assert await backend.log.read(reply_id, 0) is None


async def _finish(backend: Backend, reply_id: str) -> None:
    found = await backend.turns.find("ana", reply_id)
    assert found is not None
    assert await backend.turns.finish(found.held, completed())
