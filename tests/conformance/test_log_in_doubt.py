"""Promises of a log whose system has failed over to a copy that lacks what came last.

They run where such a thing can happen: in memory, where a test makes it happen, and on a Valkey
whose replica is promoted. The first is the reference and what the simulation uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tertulia.backends.memory import MemoryLog, MemoryStore
from tertulia.backends.valkey import ValkeyBackend
from tertulia.core.types import Append, Fenced, LogView
from tertulia.drills.valkey_server import primary_and_replica
from tertulia.ports import Log, StoreUnavailable
from tests.conformance.world import ManualClock, entries

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

PROMPT_S = 20.0
LONG_S = 50.0


@dataclass(frozen=True)
class Doubtful:
    """A log, and how its copy falls behind and takes over."""

    log: Log
    fall_behind: Callable[[], None]
    fail_over: Callable[[], None]


@pytest.fixture(params=["memory", "valkey"])
async def failing(
    request: pytest.FixtureRequest, anyio_backend: str, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Doubtful]:
    if request.param == "memory":
        log = MemoryLog(MemoryStore(clock))
        copies: list[object] = []
        yield Doubtful(
            log,
            lambda: copies.append(log.copy()),
            lambda: log.fail_over(copies[-1] if copies else log.copy()),  # type: ignore[arg-type]  # a copy of its own
        )
        return
    with primary_and_replica(tmp_path) as servers:
        backend = await ValkeyBackend.open(servers.urls)

        def fail_over() -> None:
            servers[0].kill()
            servers[1].promote()

        yield Doubtful(backend.log, lambda: servers[1].fall_behind(servers[0]), fail_over)
        await backend.close()


async def written(failing: Doubtful, *, lost: int) -> Log:
    """A log of epoch 1 with entries 1 to 5, of which the last are lost in a failover."""
    log = failing.log
    await log.fence("m_r1", 1, 1)
    await log.append("m_r1", 1, 1, entries(1, 5 - lost))
    failing.fall_behind()
    if lost:
        await log.append("m_r1", 1, 1, entries(6 - lost, 5))
    failing.fail_over()
    return log


@pytest.mark.parametrize("lost", [0, 2])
async def test_its_live_owner_writes_all_of_it_again(failing: Doubtful, lost: int) -> None:
    log = await written(failing, lost=lost)
    view = await _read(log)
    assert (view.attempt, view.last, view.in_doubt) == (1, 5 - lost, True)
    assert await log.append("m_r1", 1, 1, entries(6, 6)) is Append.MISSING
    assert await log.append("m_r1", 1, 1, ()) is Append.MISSING
    assert await log.reseed("m_r1", 1, 1, entries(1, 5)) is Append.DONE
    assert await log.append("m_r1", 1, 1, entries(6, 6)) is Append.DONE
    assert await _read(log) == LogView(1, 6, [*entries(1, 6)], in_doubt=False)


@pytest.mark.parametrize("lost", [0, 2])
async def test_an_heir_begins_another_attempt(failing: Doubtful, lost: int) -> None:
    log = await written(failing, lost=lost)
    assert await _fenced(log, 2, 1) == Fenced(2, ())
    assert await log.append("m_r1", 1, 1, entries(6, 6)) is Append.STALE
    assert await log.reseed("m_r1", 1, 1, entries(1, 5)) is Append.STALE
    assert await log.append("m_r1", 2, 2, entries(1, 1, mark="b")) is Append.DONE
    assert await _read(log) == LogView(2, 1, [*entries(1, 1, mark="b")], in_doubt=False)


async def test_an_attempt_that_was_lost_with_its_fence_is_not_used_again(
    failing: Doubtful,
) -> None:
    log = failing.log
    await log.fence("m_r1", 1, 1)
    failing.fall_behind()
    assert await log.fence("m_r1", 2, 2) == Fenced(3, ())
    await log.append("m_r1", 2, 3, entries(1, 3))
    failing.fail_over()
    await _read(log)
    assert await log.append("m_r1", 2, 3, entries(4, 4)) is Append.MISSING
    assert await log.append("m_r1", 1, 1, entries(1, 1)) is Append.MISSING  # it must ask as well
    assert await log.reseed("m_r1", 2, 3, entries(1, 3)) is Append.DONE
    assert await log.append("m_r1", 1, 1, entries(1, 1)) is Append.STALE
    assert await log.fence("m_r1", 3, 3) == Fenced(3, entries(1, 3))


async def test_a_waiter_hears_of_it(failing: Doubtful) -> None:
    log = failing.log
    await log.fence("m_r1", 1, 1)
    await log.append("m_r1", 1, 1, entries(1, 3))
    failing.fall_behind()
    await log.append("m_r1", 1, 1, entries(4, 5))
    waiting = asyncio.create_task(log.wait("m_r1", 1, 5, timeout_s=LONG_S))
    await log.read("m_r1", 0)
    failing.fail_over()
    async with asyncio.timeout(PROMPT_S):
        await waiting


async def test_a_log_that_never_reached_the_copy_is_lost(failing: Doubtful) -> None:
    failing.fall_behind()
    await failing.log.fence("m_r1", 1, 1)
    failing.fail_over()
    assert await _fenced(failing.log, 2, 1) == Fenced(2, ())


async def _read(log: Log) -> LogView:
    """The log, as soon as its system is there again."""
    async with asyncio.timeout(PROMPT_S):
        while True:
            try:
                view = await log.read("m_r1", 0)
            except StoreUnavailable:
                continue
            assert view is not None
            return LogView(view.attempt, view.last, list(view.entries), view.in_doubt)


async def _fenced(log: Log, epoch: int, attempt: int) -> Fenced | None:
    async with asyncio.timeout(PROMPT_S):
        while True:
            try:
                return await log.fence("m_r1", epoch, attempt)
            except StoreUnavailable:
                continue
