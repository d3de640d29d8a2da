"""What deleting does to logs, wherever they are kept."""

from __future__ import annotations

import asyncio

import pytest

from tertulia.core.types import Append
from tests.conformance.world import (
    Backend,
    ManualClock,
    admitted,
    answered,
    claimed,
    conversation,
    entries,
    message,
)

pytestmark = pytest.mark.anyio

LONG_S = 50.0  # a test that waits so long has failed
PROMPT_S = 20.0


async def test_the_log_of_a_deleted_turn_refuses_every_writer(
    backend: Backend, clock: ManualClock
) -> None:
    await conversation(backend)
    await admitted(backend, message(1))
    held = await claimed(backend)
    await backend.log.fence("m_r1", held.epoch, 1)
    await backend.log.append("m_r1", held.epoch, 1, entries(1, 2))
    waiting = asyncio.create_task(backend.log.wait("m_r1", 1, 2, timeout_s=LONG_S))
    assert await backend.conversations.delete("ana", "c_1") == ("m_r1",)
    async with asyncio.timeout(PROMPT_S):
        await waiting
    for later in (0, 3590):
        clock.pass_(later)
        await backend.log.drop(older_than_s=0)
        await backend.log.drop(reply_ids=["m_r1"])
        assert await backend.log.append("m_r1", 1, 1, entries(3, 3)) is Append.STALE
        assert await backend.log.reseed("m_r1", 1, 1, entries(1, 3)) is Append.STALE
        assert await backend.log.fence("m_r1", 9, 1) is None
        assert await backend.log.read("m_r1", 0) is None


async def test_a_reply_that_was_never_logged_can_be_deleted_too(backend: Backend) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    assert await backend.conversations.delete("ana", "c_1") == ()
    assert await backend.log.fence("m_r1", 2, 1) is None


async def test_nothing_is_left_to_bury(backend: Backend, clock: ManualClock) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    await backend.conversations.delete("ana", "c_1")
    clock.pass_(3600)
    assert await backend.conversations.bury_deleted() == 0
