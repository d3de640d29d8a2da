"""The background tasks of a worker: claims them while nobody else needs the models, and does them.

A task that is cut off is taken up by another worker; only one that holds the newest claim is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from tertulia.core.remembering import Task, retry_after_s
from tertulia.core.types import Lane
from tertulia.core.waiting import claimable, lowest_lane
from tertulia.ports import StoreUnavailable
from tertulia.worker.desk import WorkerDesk
from tertulia.worker.figures import TaskEnd
from tertulia.worker.pen import Superseded
from tertulia.worker.remember import NotYet, make

_log = structlog.get_logger(__name__)

# While chat needs the models it is looked so often whether it still does.
_BUSY_S = 1.0
# An idle worker hears of a new task; of one that another worker left behind it does not.
_IDLE_S = 5.0
# A claim lasts so long, unless it is renewed. No summary is urgent, but its cut comes in minutes.
_LEASE_S = 10.0
# Nothing that is made here takes so long, unless its model is stuck behind everybody else.
_LONGEST_S = 600.0


async def do_tasks(desk: WorkerDesk, leaving: Callable[[], bool] = lambda: False) -> None:
    """Runs until cancelled: as many tasks at once as the rules allow, none more while leaving."""
    async with asyncio.TaskGroup() as tasks:
        for _ in range(desk.rules.tasks):
            tasks.create_task(_one_by_one(desk, leaving))


async def _one_by_one(desk: WorkerDesk, leaving: Callable[[], bool]) -> None:
    while not leaving():
        if not _may_claim(desk):
            await desk.clock.sleep(_BUSY_S)
            continue
        try:
            task = await desk.tasks.claim(lease_s=_LEASE_S)
        except StoreUnavailable:
            await desk.clock.sleep(_BUSY_S)
            continue
        if task is None:
            await desk.bell.wait("tasks", timeout_s=_IDLE_S)
        else:
            await _do(desk, task)


def _may_claim(desk: WorkerDesk) -> bool:
    """Whether a batch could be claimed now: what is kept free for chat stays free."""
    may = claimable(desk.replicas.models(), n_held=0, n_most=1)
    return may is not None and lowest_lane(may, {}) is Lane.BATCH


async def _do(desk: WorkerDesk, task: Task) -> None:
    async with asyncio.TaskGroup() as tasks:
        making = tasks.create_task(_done(desk, task))
        holding = tasks.create_task(_hold(desk, task, making))
        await asyncio.wait([making])
        holding.cancel()


async def _hold(desk: WorkerDesk, task: Task, making: asyncio.Task[None]) -> None:
    """Renews the claim; ends what takes too long, and what nobody wants any more: its conversation
    was deleted, or another worker makes it."""
    until = desk.clock.now() + _LONGEST_S
    while True:
        await desk.clock.sleep(_LEASE_S / 3)
        try:
            is_ours = await desk.tasks.renew(task, lease_s=_LEASE_S)
        except StoreUnavailable:
            continue  # what is made late is refused when it is stored
        if not is_ours or desk.clock.now() >= until:
            making.cancel()
            return


async def _done(desk: WorkerDesk, task: Task) -> None:
    """One task, whatever happens to it: no fault of one may end the worker."""
    try:
        desk.figures.tasks.labels(task.kind, await _tried(desk, task)).inc()
    except StoreUnavailable:
        _log.warning("task_interrupted", kind=task.kind, cause="store_unavailable")


async def _tried(desk: WorkerDesk, task: Task) -> TaskEnd:
    try:
        made = await make(desk, task)
    except Superseded:
        return "late"
    except NotYet:
        await desk.tasks.fail(task, due_in_s=retry_after_s(task))
        return "put_off"
    except Exception:  # noqa: BLE001  # the border of one task; it is logged and tried again
        _log.exception("task_failed", kind=task.kind)
        await desk.tasks.fail(task, due_in_s=retry_after_s(task))
        return "failed"
    if made is None:
        await desk.tasks.fail(task, due_in_s=None)
        return "empty"
    return "made" if await desk.tasks.finish(task, made) else "late"
