"""The lanes of `tertulia serve`: gateway and worker in one process, over any kind of stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tertulia.backends.clock import SystemClock
from tertulia.config import Settings
from tertulia.gateway.welcome import first_admin, leave_key, sign_in_token
from tertulia.leaving import Leaving
from tertulia.listening import Listening
from tertulia.wiring.desks import Parts, gateway_desk, worker_desk
from tertulia.wiring.gateway import keep_prompt, serve_http
from tertulia.wiring.stores import opened_stores
from tertulia.wiring.worker import answer_turns, health_port
from tertulia.worker.loop import Worker

# The supervisor holds the socket and starts the lanes again at once: nothing is gained by waiting.
_NO_GRACE_S = 0.0


async def run_lanes(
    settings: Settings, listening: Listening, say_link: Callable[[str], None] | None
) -> None:
    """Gateway and worker until SIGTERM or SIGINT.

    `say_link` is given a link that signs the administrator in, once.
    """
    leaving, clock = Leaving.at_signals(), SystemClock()
    health = health_port(settings)
    async with opened_stores(settings, clock) as stores:
        if not stores.is_shared:
            # Nobody else can hold a claim: what the last process held goes on at once.
            await stores.queue.restarted()
        parts = Parts(settings, clock, stores)
        desk = gateway_desk(parts)
        await keep_prompt(settings, desk)
        admin = await first_admin(desk)
        if admin is not None:
            await leave_key(desk, admin, settings.key_file)
            if say_link is not None:
                say_link(f"{listening.address}/#signin={await sign_in_token(desk, admin)}")
        worker = Worker(worker_desk(parts))
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(parts.replicas.run())
            async with asyncio.TaskGroup() as roles:
                roles.create_task(serve_http(desk, listening.socket, leaving, _NO_GRACE_S))
                roles.create_task(answer_turns(worker, health, leaving, _NO_GRACE_S))
            watching.cancel()
