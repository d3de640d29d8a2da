"""Drills in which our own processes are lost, or are all replaced while people read."""

from __future__ import annotations

import asyncio
from typing import Final

from tertulia.drills.listener import Seen
from tertulia.drills.stage import (
    QUESTION,
    Promise,
    Stage,
    all_whole,
    silent_at_most,
    whole,
)

# Another gateway is there at once; the client notices the cut line and asks it.
_GATEWAY_S: Final = 1.0
# A lease of 2 s ends, another worker looks within half a second, and the engine reads the prompt.
_WORKER_S: Final = 3.0
_READERS: Final = 2


async def gateway(stage: Stage) -> list[Promise]:
    """The gateway that shows a reply dies; the reader goes on at another, the reply never stops."""
    seen = await stage.in_mid_reply(lambda: stage.kill(stage.fleet.gateways[0]))
    return [
        *await whole(stage, seen, gateway=1),
        silent_at_most(_GATEWAY_S, seen),
        Promise("the reply itself was not interrupted", seen.pauses == 0, f"{seen.pauses} pauses"),
    ]


async def worker(stage: Stage) -> list[Promise]:
    """The worker that answers dies; another goes on from the last word that was logged."""

    async def break_it() -> None:
        await stage.kill(await stage.busy(stage.fleet.workers, "worker"))

    seen = await stage.in_mid_reply(break_it)
    return [*await whole(stage, seen), silent_at_most(_WORKER_S, seen)]


async def all_at_once(stage: Stage) -> list[Promise]:
    """Gateway, worker and engine of one reply die in the same moment."""

    async def break_it() -> None:
        fleet = stage.fleet
        lost = [
            fleet.gateways[0],
            await stage.busy(fleet.workers, "worker"),
            await stage.busy(fleet.replicas, "replica"),
        ]
        for role in lost:
            await stage.kill(role)

    seen = await stage.in_mid_reply(break_it)
    return [*await whole(stage, seen, gateway=1), silent_at_most(_WORKER_S, seen)]


async def deploy(stage: Stage) -> list[Promise]:
    """Every process is replaced, one after the other, under open replies: a rolling restart."""
    fleet, replies = stage.fleet, [Seen(QUESTION) for _ in range(_READERS)]
    over = asyncio.Event()

    async def read_on(seen: Seen, gateway: int) -> None:
        await stage.ask(seen, gateway=gateway)
        while not over.is_set():
            replies.append(Seen(QUESTION))
            await stage.ask(replies[-1], gateway=gateway)

    async with asyncio.TaskGroup() as tasks:
        for gateway, seen in enumerate(replies):
            tasks.create_task(read_on(seen, gateway))
        for seen in replies[:_READERS]:
            await stage.words(seen)
        for role in (*fleet.gateways, *fleet.workers, *fleet.replicas):
            stage.note(f"{role.name}: asked to end (SIGTERM)")
            status = await role.end()
            stage.note(f"{role.name}: ended with {status}")
            await stage.bring_back(role)
        over.set()
    moved = sum(seen.is_moved for seen in replies)
    usual_s = max((seen.longest_gap_s for seen in replies if not seen.is_moved), default=0.0)
    return [
        *await all_whole(stage, replies),
        Promise("replies were open all the while", moved > 0, f"{moved} were moved"),
        silent_at_most(_WORKER_S, *replies, usual_s=usual_s),
    ]
