"""The simulation's own floor: virtual time jumps, hung programs are told, the dead do nothing."""

import asyncio
import time

import pytest

from tertulia.backends.memory import MemoryBackend
from tests.sim.process import Process, Report
from tests.sim.virtual import Deadlock, OutOfBounds, Spinning, VirtualClock, VirtualLoop


def loop() -> VirtualLoop:
    return VirtualLoop(max_steps=100_000, max_time_s=1e6)


def test_an_hour_passes_at_once() -> None:
    here, begun_at = loop(), time.monotonic()
    here.run_until_complete(asyncio.sleep(3600))
    assert here.time() == 3600
    assert time.monotonic() - begun_at < 5
    here.close()


def test_waiting_for_what_cannot_come_is_a_deadlock() -> None:
    here = loop()
    with pytest.raises(Deadlock):
        here.run_until_complete(here.create_future())
    here.close()


def test_going_round_without_time_passing_is_told() -> None:
    async def spin() -> None:
        while True:
            await clock.sleep(0)

    here = loop()
    clock = VirtualClock(here)
    task = here.create_task(spin(), name="the spinner")
    with pytest.raises(Spinning, match="the spinner"):
        here.run_forever()
    end(here, task)


def test_a_run_has_a_bound() -> None:
    async def dawdle() -> None:
        while True:
            await clock.sleep(1)

    here = VirtualLoop(max_steps=50, max_time_s=1e6)
    clock = VirtualClock(here)
    task = here.create_task(dawdle())
    with pytest.raises(OutOfBounds):
        here.run_forever()
    end(here, task)


def end(here: VirtualLoop, task: asyncio.Task[None]) -> None:
    here.forget_bounds()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        here.run_until_complete(task)
    here.close()


def test_a_frozen_process_gets_no_further_and_then_goes_on() -> None:
    here, seen = loop(), list[float]()

    async def tick(process: Process) -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            await process.gate()
            seen.append(here.time())

    process = Process("p", here, reported([]))
    process.spawn(tick(process), "tick")
    here.call_later(1.5, process.freeze)
    here.call_later(10, process.thaw)
    here.run_until_complete(asyncio.sleep(20))
    assert seen == [1.0, 10.0, 11.0]
    here.close()


def test_a_killed_process_does_nothing_any_more_not_even_while_it_unwinds() -> None:
    here, reports = loop(), list[str]()
    backend = MemoryBackend(VirtualClock(here))
    process = Process("p", here, reported(reports))

    async def work() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            await process.gate()
            await backend.conversations.create("ann", "c_1", key=None, prompt_version="v")

    process.spawn(work(), "work")
    here.call_later(1, process.kill)
    here.run_until_complete(asyncio.sleep(20))
    assert not backend.store.conversations
    assert not process.running
    assert reports == []
    here.close()


def test_a_task_that_fails_is_reported() -> None:
    here, reports = loop(), list[str]()

    async def stumble() -> None:
        raise LookupError("no such thing")

    Process("p", here, reported(reports)).spawn(stumble(), "stumble")
    here.run_until_complete(asyncio.sleep(1))
    line = stumble.__code__.co_firstlineno + 1
    assert reports == [f"p/stumble: LookupError: no such thing (test_virtual.py:{line})"]
    here.close()


def reported(reports: list[str]) -> Report:
    return lambda check, text: reports.append(text)
