"""The real clock, its ids, and the bell of one process."""

from __future__ import annotations

import asyncio
import re
import time

import pytest

from tertulia.backends.bell import REMEMBERED_TOPICS, LocalBell
from tertulia.backends.clock import ALPHABET, SystemClock, SystemIds

PROMPT_S = 20.0
LONG_S = 50.0


class StandingClock(SystemClock):
    """A clock whose time is set by the test."""

    seconds = 1_796_000_000.0

    def now(self) -> float:
        return self.seconds


def test_the_clock_starts_at_the_wall_and_never_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    assert abs(clock.now() - time.time()) < 5
    before = clock.now()
    monkeypatch.setattr(time, "time", lambda: 0.0)  # somebody sets the wall clock back
    assert clock.now() >= before


def test_an_id_is_its_prefix_and_26_characters_of_the_alphabet() -> None:
    made = SystemIds()("m")
    assert re.fullmatch(f"m_[{ALPHABET}]{{26}}", made)


def test_ids_sort_by_creation_also_within_a_millisecond_and_when_time_stands() -> None:
    clock = StandingClock()
    new_id = SystemIds(clock)
    made = [new_id("m") for _ in range(2000)]
    clock.seconds += 0.001
    made.append(new_id("m"))
    clock.seconds -= 60
    made.append(new_id("m"))
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_two_processes_make_different_ids_in_the_same_millisecond() -> None:
    first, second = SystemIds(StandingClock()), SystemIds(StandingClock())
    assert first("m") != second("m")
    assert first("m")[:12] == second("m")[:12]


@pytest.mark.anyio
async def test_a_ring_wakes_everyone_on_its_topic_and_nobody_else() -> None:
    bell = LocalBell()
    waiting = [asyncio.create_task(bell.wait("turns", timeout_s=LONG_S)) for _ in range(3)]
    other = asyncio.create_task(bell.wait("other", timeout_s=LONG_S))
    await asyncio.sleep(0)
    bell.ring("turns")
    async with asyncio.timeout(PROMPT_S):
        await asyncio.gather(*waiting)
    assert not other.done()
    other.cancel()


@pytest.mark.anyio
async def test_a_ring_between_looking_and_waiting_is_not_missed() -> None:
    bell = LocalBell()
    bell.ring("turns")
    async with asyncio.timeout(PROMPT_S):
        await bell.wait("turns", timeout_s=LONG_S)
        await bell.wait("turns", timeout_s=0.01)  # it is heard once


@pytest.mark.anyio
async def test_rings_that_nobody_hears_do_not_pile_up() -> None:
    bell = LocalBell()
    for n in range(REMEMBERED_TOPICS + 10):
        bell.ring(f"topic-{n}")
    assert len(bell._rung) == REMEMBERED_TOPICS


@pytest.mark.anyio
async def test_a_wait_for_a_bell_ends_by_itself_and_leaves_nothing() -> None:
    bell = LocalBell()
    async with asyncio.timeout(PROMPT_S):
        await bell.wait("turns", timeout_s=0.01)
    waiting = asyncio.create_task(bell.wait("turns", timeout_s=LONG_S))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert bell._sleepers._by_topic == {}
