"""Starts the embedded engine as this process: model, step thread, HTTP.

It must never stay alive without a step thread: a supervisor can only restart what has ended.
"""

import asyncio
import json
import logging
import os
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import anyio
import uvicorn

from tertulia.listening import bind
from tertulia.replica.chat import ChatPrompts
from tertulia.replica.constraint import Constraints
from tertulia.replica.description import Description, DescriptionUnreadable, read_description
from tertulia.replica.desk import Desk
from tertulia.replica.engine import Engine, EngineSettings
from tertulia.replica.lifeline import die_with_parent
from tertulia.replica.llama import LlamaModel, LlamaSettings
from tertulia.replica.metrics import ReplicaMetrics
from tertulia.replica.server import COMPILERS, Served, replica_app
from tertulia.replica.tuning import LARGEST, measure_step_tokens
from tertulia.template import TemplateRefused

log = logging.getLogger("tertulia.replica")

KEY_VARIABLE = "TERTULIA_REPLICA_KEY"  # never an argument: those are seen by everybody in `ps`
GRACE_S = 5.0  # for open streams, when asked to end
BACKLOG = 256


@dataclass(frozen=True)
class ReplicaSettings:
    """One embedded engine."""

    folder: Path  # of an installed model
    host: str = "127.0.0.1"
    port: int = 0  # 0: any free one; the first line on standard output says which
    threads: int = 0  # 0: all cores
    n_slots: int = 8  # the CPU's arithmetic is used up by eight streams; more only slow each other
    n_parked: int = 24  # finished sequences kept for the next turn
    n_cache: int = 16_384  # tokens, of all sequences together
    n_queue: int = 64
    n_queue_tokens: int = 2**63  # of prompts not read yet; more of them are refused
    stream_interval: int = 1  # tokens in one chunk of a stream, but for the first and the last
    host_bytes: int = 512_000_000  # of memory, for finished sequences that leave the cache
    step_target_s: float = 0.1  # the longest a stream should wait for its next token
    step_tokens: int | None = None  # instead of measuring it
    key: str | None = None  # what clients must present
    parent_pid: int | None = None  # ends with this process


def run(settings: ReplicaSettings) -> int:
    """Serves until a signal ends it; returns 1 when the engine died, 2 when it could not start."""
    if settings.parent_pid is not None:
        die_with_parent(settings.parent_pid)
    try:
        description = read_description(settings.folder)
        prompts = ChatPrompts(description)
        listener = bind(settings.host, settings.port)
    except (DescriptionUnreadable, TemplateRefused, OSError) as error:
        log.error("%s", error)
        return 2
    began_s = time.perf_counter()
    try:
        model = LlamaModel(settings.folder, description, _llama_settings(settings))
    except (ValueError, OSError, RuntimeError) as error:
        listener.close()
        log.error("%s can't be loaded: %s", settings.folder, error)
        log.error("delete that folder and fetch it again: tertulia models install")
        return 2
    measured = settings.step_tokens or measure_step_tokens(model, settings.step_target_s)
    step_tokens = max(measured, settings.n_slots)  # every stream moves in every step
    log.info(
        "%s is ready after %.1f s: %d tokens a step, %d slots, %d tokens of cache",
        description.served_id,
        time.perf_counter() - began_s,
        step_tokens,
        settings.n_slots,
        model.limits.n_cache,
    )
    try:
        return asyncio.run(_serve(settings, description, prompts, model, step_tokens, listener))
    finally:
        model.close()


async def _serve(
    settings: ReplicaSettings,
    description: Description,
    prompts: ChatPrompts,
    model: LlamaModel,
    step_tokens: int,
    listener: socket.socket,
) -> int:
    desk = Desk(asyncio.get_running_loop())
    engine = Engine(model, _engine_settings(settings, step_tokens), desk.deliver)
    served = Served(
        description=description,
        model=model,
        engine=engine,
        desk=desk,
        metrics=ReplicaMetrics(description.served_id, engine.counts),
        prompts=prompts,
        constraints=Constraints(model),
        compilers=anyio.CapacityLimiter(COMPILERS),
        stream_interval=settings.stream_interval,
        began_at=int(time.time()),
    )
    server = uvicorn.Server(
        uvicorn.Config(
            replica_app(served, settings.key),
            access_log=False,  # paths say nothing, and a line a token would be noise
            log_config=None,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=int(GRACE_S),
        )
    )
    deaths: list[BaseException] = []

    def died(error: BaseException) -> None:
        log.critical("the step thread has died", exc_info=error)
        deaths.append(error)
        server.should_exit = True

    engine.start(died)
    _say_ready(listener)
    try:
        await server.serve(sockets=[listener])
    finally:
        engine.stop(GRACE_S)
    return 1 if deaths else 0


def _say_ready(listener: socket.socket) -> None:
    """One line for whoever started us; connections wait in the backlog from here on."""
    listener.listen(BACKLOG)
    host, port = listener.getsockname()[:2]
    sys.stdout.write(json.dumps({"ready": True, "host": host, "port": port}) + "\n")
    sys.stdout.flush()


def _engine_settings(settings: ReplicaSettings, step_tokens: int) -> EngineSettings:
    return EngineSettings(
        settings.n_slots,
        settings.n_queue,
        step_tokens,
        step_target_s=None if settings.step_tokens else settings.step_target_s,
        host_bytes=settings.host_bytes,
        n_queue_tokens=settings.n_queue_tokens,
    )


def _llama_settings(settings: ReplicaSettings) -> LlamaSettings:
    return LlamaSettings(
        threads=settings.threads or len(os.sched_getaffinity(0)),
        n_cache=settings.n_cache,
        n_sequences=settings.n_slots + settings.n_parked,
        n_batch=max(settings.step_tokens or LARGEST, settings.n_slots),
    )
