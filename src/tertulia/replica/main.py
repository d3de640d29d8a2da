"""Starts the embedded engine as this process: model, step thread, HTTP.

It must never stay alive without a step thread: a supervisor can only restart what has ended.
"""

import argparse
import asyncio
import json
import logging
import os
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from tertulia.replica.description import Description, DescriptionUnreadable, read_description
from tertulia.replica.desk import Desk
from tertulia.replica.engine import Engine, EngineSettings
from tertulia.replica.lifeline import die_with_parent
from tertulia.replica.llama import LlamaModel, LlamaSettings
from tertulia.replica.metrics import ReplicaMetrics
from tertulia.replica.server import Served, replica_app
from tertulia.replica.template import ChatTemplate
from tertulia.replica.tuning import LARGEST, measure_step_tokens

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
    host_bytes: int = 512_000_000  # of memory, for finished sequences that leave the cache
    step_target_s: float = 0.1  # the longest a stream should wait for its next token
    step_tokens: int | None = None  # instead of measuring it
    served_id: str | None = None  # instead of the model's own
    key: str | None = None  # what clients must present
    parent_pid: int | None = None  # ends with this process


def run(settings: ReplicaSettings) -> int:
    """Serves until a signal ends it; returns 1 when the engine died, 2 when it could not start."""
    if settings.parent_pid is not None:
        die_with_parent(settings.parent_pid)
    try:
        description = read_description(settings.folder)
        listener = _listen(settings)
    except (DescriptionUnreadable, OSError) as error:
        log.error("%s", error)
        return 2
    began_s = time.perf_counter()
    model = LlamaModel(settings.folder, description, _llama_settings(settings))
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
        return asyncio.run(_serve(settings, description, model, step_tokens, listener))
    finally:
        model.close()


def main(arguments: list[str]) -> int:
    """The command line of a replica on its own."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    return run(_settings(arguments))


async def _serve(
    settings: ReplicaSettings,
    description: Description,
    model: LlamaModel,
    step_tokens: int,
    listener: socket.socket,
) -> int:
    desk = Desk(asyncio.get_running_loop())
    engine_settings = EngineSettings(
        settings.n_slots,
        settings.n_queue,
        step_tokens,
        step_target_s=None if settings.step_tokens else settings.step_target_s,
        host_bytes=settings.host_bytes,
    )
    engine = Engine(model, engine_settings, desk.deliver)
    model_id = settings.served_id or description.served_id
    served = Served(
        model_id=model_id,
        description=description,
        model=model,
        engine=engine,
        desk=desk,
        metrics=ReplicaMetrics(model_id, engine.counts),
        template=ChatTemplate(description, model.encode),
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


def _listen(settings: ReplicaSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((settings.host, settings.port))
    return listener


def _say_ready(listener: socket.socket) -> None:
    """One line for whoever started us; connections wait in the backlog from here on."""
    listener.listen(BACKLOG)
    host, port = listener.getsockname()[:2]
    sys.stdout.write(json.dumps({"ready": True, "host": host, "port": port}) + "\n")
    sys.stdout.flush()


def _llama_settings(settings: ReplicaSettings) -> LlamaSettings:
    return LlamaSettings(
        threads=settings.threads or len(os.sched_getaffinity(0)),
        n_cache=settings.n_cache,
        n_sequences=settings.n_slots + settings.n_parked,
        n_batch=max(settings.step_tokens or LARGEST, settings.n_slots),
    )


def _settings(arguments: list[str]) -> ReplicaSettings:
    parser = argparse.ArgumentParser(
        prog="python -m tertulia.replica",
        description="Serves one installed model in the dialect of a vLLM server.",
        epilog=f"Clients need the bearer key in {KEY_VARIABLE}, if that is set.",
    )
    default = ReplicaSettings(Path())
    parser.add_argument("folder", type=Path, help="of the installed model, such as models/small")
    parser.add_argument("--host", default=default.host)
    parser.add_argument("--port", type=int, default=default.port, help="0: any free one")
    parser.add_argument("--threads", type=int, default=default.threads, help="0: all cores")
    parser.add_argument("--slots", type=int, default=default.n_slots, help="sequences at once")
    parser.add_argument("--parked", type=int, default=default.n_parked, help="finished ones kept")
    parser.add_argument("--cache-tokens", type=int, default=default.n_cache)
    parser.add_argument("--queue", type=int, default=default.n_queue, help="requests waiting")
    parser.add_argument("--host-bytes", type=int, default=default.host_bytes)
    parser.add_argument("--step-target-ms", type=float, default=default.step_target_s * 1000)
    parser.add_argument("--step-tokens", type=int, help="instead of measuring it at start")
    parser.add_argument("--served-id", help="instead of the model's own")
    parser.add_argument(
        "--die-with-parent",
        type=int,
        nargs="?",
        const=os.getppid(),
        metavar="PID",
        help="end when this parent process ends",
    )
    given = parser.parse_args(arguments)
    return ReplicaSettings(
        folder=given.folder,
        host=given.host,
        port=given.port,
        threads=given.threads,
        n_slots=given.slots,
        n_parked=given.parked,
        n_cache=given.cache_tokens,
        n_queue=given.queue,
        host_bytes=given.host_bytes,
        step_target_s=given.step_target_ms / 1000,
        step_tokens=given.step_tokens,
        served_id=given.served_id,
        key=os.environ.get(KEY_VARIABLE) or None,
        parent_pid=given.die_with_parent,
    )
