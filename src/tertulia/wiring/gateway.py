"""`tertulia gateway`: takes turns and shows replies, and computes nothing.

Any number of them run over the same stores; none keeps anything that another would miss.
"""

from __future__ import annotations

import asyncio
import socket

import structlog

from tertulia.backends.clock import SystemClock
from tertulia.config import Settings
from tertulia.core.rollout import followed
from tertulia.gateway.app import create_app
from tertulia.gateway.desk import Desk
from tertulia.gateway.porter import carry_imports
from tertulia.gateway.pump import pump_batches
from tertulia.gateway.welcome import first_admin
from tertulia.leaving import Leaving
from tertulia.listening import BACKLOG, listening_on
from tertulia.wiring.desks import Parts, gateway_desk
from tertulia.wiring.http import server_for
from tertulia.wiring.stores import opened_stores

_log = structlog.get_logger(__name__)


async def run_gateway(settings: Settings, bound: socket.socket) -> None:
    """Serves on `bound` until SIGTERM or SIGINT.

    It takes no connection before its stores are open, so that a proxy turns to another gateway.
    """
    leaving, clock = Leaving.at_signals(), SystemClock()
    async with opened_stores(settings, clock) as stores:
        parts = Parts(settings, clock, stores)
        desk = gateway_desk(parts)
        await first_admin(desk)
        await keep_prompt(settings, desk)
        bound.listen(BACKLOG)
        _log.info("gateway_up", at=listening_on(bound).address)
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(parts.replicas.run())
            looking = tasks.create_task(parts.lookout.run(parts.replicas, None))
            await serve_http(desk, bound, leaving, settings.server.drain_s)
            watching.cancel()
            looking.cancel()


async def keep_prompt(settings: Settings, desk: Desk) -> None:
    """Stores the configured system prompt by name, and has it given to who begins from now on
    where the configuration was edited. What administrators roll out is theirs otherwise."""
    configured = settings.prompt_version
    await desk.conversations.prompt_text(configured, store=settings.prompt.system)
    seen = await desk.prompts.rollout()
    to = followed(seen, configured)
    if to is not None:
        await desk.prompts.roll_out(seen, to)  # if that is not done, another gateway did it
    elif seen is not None and seen.configured != configured:
        _log.warning("prompt_not_followed", why="a rollout is under way", version=configured)


async def serve_http(desk: Desk, bound: socket.socket, leaving: Leaving, notice_s: float) -> None:
    """Serves until asked to leave; then it is not ready and takes no new turns.

    After `notice_s`, in which a proxy has turned to others, every stream is closed at an event
    border with a `retry:`.
    """
    server = server_for(create_app(desk), trusted_proxies=desk.rules.trusted_proxies)
    async with asyncio.TaskGroup() as tasks:
        beating = [
            tasks.create_task(desk.line.run()),
            tasks.create_task(desk.pulse.run()),
            tasks.create_task(desk.streams.beat(desk.presence, desk.clock)),
            tasks.create_task(desk.streams.hold(desk.clock)),
            tasks.create_task(desk.streams.recheck(desk.sessions, desk.api_keys, desk.clock)),
        ]
        working = [
            tasks.create_task(pump_batches(desk)),
            tasks.create_task(carry_imports(desk)),
        ]
        serving = tasks.create_task(server.serve(sockets=[bound]))
        await leaving.asked.wait()
        desk.streams.leaving = True
        for work in working:
            work.cancel()
        await leaving.grace(notice_s)
        desk.streams.draining = True
        server.should_exit = True
        await serving
        for beat in beating:
            beat.cancel()
