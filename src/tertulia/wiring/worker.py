"""`tertulia worker`: claims turns and answers them through the replicas; nobody connects to it.

Any number of them run over the same stores. What one leaves unfinished another goes on with.
"""

from __future__ import annotations

import asyncio

import structlog

from tertulia.backends.clock import SystemClock
from tertulia.config import Settings
from tertulia.leaving import Leaving
from tertulia.listening import Listening, listen
from tertulia.wiring.desks import Parts, worker_desk
from tertulia.wiring.stores import opened_stores
from tertulia.worker.health import WorkerHealth
from tertulia.worker.loop import Worker

_log = structlog.get_logger(__name__)


async def run_worker(settings: Settings) -> None:
    """Answers turns until SIGTERM or SIGINT."""
    leaving, clock = Leaving.at_signals(), SystemClock()
    health = health_port(settings)
    async with opened_stores(settings, clock) as stores:
        parts = Parts(settings, clock, stores)
        worker = Worker(worker_desk(parts))
        _log.info("worker_up", health=health.address if health else None)
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(parts.replicas.run())
            await answer_turns(worker, health, leaving, settings.worker.drain_s)
            watching.cancel()


def health_port(settings: Settings) -> Listening | None:
    """Where probes and Prometheus will be answered; OSError when the address is taken."""
    table = settings.worker
    return None if table.health_port is None else listen(table.health_host, table.health_port)


async def answer_turns(
    worker: Worker, health: Listening | None, leaving: Leaving, grace_s: float
) -> None:
    """Answers until asked to leave; then nothing new is claimed.

    What ends within `grace_s` ends here; the rest is given back, and another goes on at once.
    """
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(worker.run())
        showing = [tasks.create_task(_show(WorkerHealth(worker), health))] if health else []
        await leaving.asked.wait()
        worker.drain()
        await leaving.grace(grace_s, until=[working])
        working.cancel()
        await asyncio.wait([working])
        for server in showing:
            server.cancel()


async def _show(app: WorkerHealth, listening: Listening) -> None:
    # Only here: most workers listen nowhere, and need no server for that.
    from tertulia.wiring.http import server_for

    await server_for(app).serve(sockets=[listening.socket])
