"""The zygote forks what it is told, hears every end, and takes its children with it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.chaos.nursery import Nursery, Order

pytestmark = [pytest.mark.anyio, pytest.mark.processes]
HERE = "tests.chaos.test_zygote"


def wait_for_ever() -> None:
    """What a child of these tests does."""
    print("here", flush=True)
    signal.pause()


def say_and_leave(*, word: str, status: int) -> None:
    print(word, os.environ["CHAOS_TEST"], sys.stdin.read())
    raise SystemExit(status)


def break_at_once() -> None:
    raise ValueError("broken")


@asynccontextmanager
async def nursery(tmp_path: Path) -> AsyncGenerator[Nursery, None]:
    made = Nursery()
    await made.open(tmp_path / "zygote.log", preload=())
    try:
        yield made
    finally:
        await made.close()


async def test_children_do_as_ordered_and_every_unasked_end_is_kept(tmp_path: Path) -> None:
    async with nursery(tmp_path) as made:
        order = Order(
            "a",
            f"{HERE}:say_and_leave",
            tmp_path / "a.log",
            {"word": "hello", "status": 7},
            {"CHAOS_TEST": "there"},
        )
        child = await made.start(order)
        await asyncio.wait_for(child.gone.wait(), 10)
        assert (child.status, order.log.read_text()) == (7, "hello there \n")
        broken = await made.start(Order("b", f"{HERE}:break_at_once", tmp_path / "b.log"))
        await asyncio.wait_for(broken.gone.wait(), 10)
        assert "ValueError: broken" in (tmp_path / "b.log").read_text()
        asked = await made.start(Order("c", f"{HERE}:wait_for_ever", tmp_path / "c.log"))
        assert await made.kill("c") is asked
        again = await made.start(Order("c", f"{HERE}:wait_for_ever", tmp_path / "c.log"))
        assert again.pid != asked.pid
        await made.end("c")
        assert made.unexplained() == [child, broken]


async def test_a_frozen_child_is_stopped_and_goes_on(tmp_path: Path) -> None:
    async with nursery(tmp_path) as made:
        child = await made.start(Order("a", f"{HERE}:wait_for_ever", tmp_path / "a.log"))
        freezing = asyncio.ensure_future(made.freeze("a", 0.3))
        async with asyncio.timeout(5):
            while state_of(child.pid) != "T":  # noqa: ASYNC110  # a process has no event
                await asyncio.sleep(0.01)
        await freezing
        async with asyncio.timeout(5):
            while state_of(child.pid) == "T":  # noqa: ASYNC110  # a process has no event
                await asyncio.sleep(0.01)
        assert child.status is None


async def test_no_child_outlives_the_zygote(tmp_path: Path) -> None:
    async with nursery(tmp_path) as made:
        child = await made.start(Order("a", f"{HERE}:wait_for_ever", tmp_path / "a.log"))
    assert not Path(f"/proc/{child.pid}").exists()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
