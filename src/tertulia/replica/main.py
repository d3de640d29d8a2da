"""Starts the embedded engine as this process: model, step thread, HTTP.

It must never stay alive without a step thread: a supervisor can only restart what has ended.
"""

import asyncio
import json
import logging
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import anyio
import uvicorn
import uvloop

from tertulia.core.fleet import ReplicaReport
from tertulia.core.prefix import CacheLimits
from tertulia.core.steps import StepBounds
from tertulia.leaving import Leaving
from tertulia.listening import bind
from tertulia.replica.chat import ChatPrompts
from tertulia.replica.constraint import Constraints
from tertulia.replica.description import Description, DescriptionUnreadable, read_description
from tertulia.replica.desk import Desk
from tertulia.replica.engine import Engine, EngineSettings
from tertulia.replica.generation import Emission
from tertulia.replica.inbox import QueueBounds
from tertulia.replica.lifeline import die_when_stuck, die_with_parent
from tertulia.replica.llama import LlamaModel
from tertulia.replica.metrics import ReplicaMetrics
from tertulia.replica.model import Model, ModelSettings, NotReady
from tertulia.replica.reporting import OpenRegistry, keep_reporting
from tertulia.replica.server import COMPILERS, Served, replica_app
from tertulia.replica.shelf import hold
from tertulia.replica.spill import Spill
from tertulia.replica.thread import ComputeThread
from tertulia.replica.tuning import measure_step_cost
from tertulia.template import TemplateRefused

log = logging.getLogger("tertulia.replica")

KEY_VARIABLE = "TERTULIA_REPLICA_KEY"  # never an argument: those are seen by everybody in `ps`
GRACE_S = 5.0  # for open streams, when asked to end
LOOK_S = 0.05  # how often it looks whether all have ended
BACKLOG = 256
N_ANCHORS = 64  # conversations whose last blocks may be in the model's cache at once
MEGABYTE = 1_000_000
NO_BOUND = 2**63


Arithmetic = Literal["llama.cpp", "openvino"]


@dataclass(frozen=True)
class ReplicaSettings:
    """One embedded engine."""

    folder: Path  # of an installed model
    host: str = "127.0.0.1"
    port: int = 0  # 0: any free one; the first line on standard output says which
    arithmetic: Arithmetic = "llama.cpp"
    threads: int = 0  # 0: all cores
    n_slots: int = 8  # the CPU's arithmetic is used up by eight streams; more only slow each other
    n_cache: int = 16_384  # tokens, of all sequences together
    n_queue: int = 64
    n_queue_tokens: int = NO_BOUND  # of prompts not read yet; more of them are refused
    stream_interval: int = 1  # tokens in one chunk of a stream, but for the first and the last
    host_bytes: int = 512 * MEGABYTE  # of memory, for what ended requests left
    disk_bytes: int = 0  # of disk, for what that memory does not hold
    step_target_s: float = 0.03  # the longest a stream should wait for its next token
    batch_tokens: int = 256  # in one step at most; on a CPU nothing is gained above it
    drain_s: float = 2.0  # for replies that run when it is asked to end; then they are cut
    key: str | None = None  # what clients must present
    parent_pid: int | None = None  # ends with this process


@dataclass(frozen=True)
class Registration:
    """Where a replica says that it is there, and as what."""

    registry: OpenRegistry
    name: str | None = None  # of its own; host and port if not given
    url: str | None = None  # where others reach it, if not where it listens
    pool: str = "large"


def run(settings: ReplicaSettings, registration: Registration | None = None) -> int:
    """Serves until a signal ends it; returns 1 when the engine died, 2 when it could not start."""
    if settings.parent_pid is not None:
        die_with_parent(settings.parent_pid)
    try:
        description = read_description(settings.folder)
        prompts = ChatPrompts(description)
        hold(settings.folder)
        listener = bind(settings.host, settings.port)
    except (DescriptionUnreadable, TemplateRefused, OSError) as error:
        log.error("%s", error)
        return 2
    began_s = time.perf_counter()
    thread = ComputeThread()
    try:
        model = thread.do(lambda: _opened(settings, description)).result()
    except NotReady as error:
        listener.close()
        log.error("%s", error)
        return 2
    except (ValueError, OSError, RuntimeError) as error:
        listener.close()
        log.error("%s can't be loaded: %s", settings.folder, error)
        name = settings.folder.name
        log.error("`tertulia models verify %s` says what is wrong with it", name)
        return 2
    block_tokens = model.limits.block_tokens
    cost, block_bytes = thread.do(lambda: measure_step_cost(model, block_tokens)).result()
    bounds = _engine_settings(settings, model, block_bytes)
    try:
        spill = Spill(block_bytes, bounds.cache.n_disk, settings.folder)
    except OSError as error:
        listener.close()
        thread.do(model.close).result()
        log.error("there is no room for %d bytes of cache on disk: %s", settings.disk_bytes, error)
        return 2
    log.info(
        "%s is ready on %s after %.1f s: "
        "a step takes %.1f ms and %.2f a token; %d slots, %d tokens",
        description.served_id,
        settings.arithmetic,
        time.perf_counter() - began_s,
        cost.fixed_s * 1000,
        cost.token_s * 1000,
        settings.n_slots,
        model.limits.n_cache,
    )
    try:
        return uvloop.run(
            _serve(
                settings,
                description,
                prompts,
                model,
                thread,
                lambda deliver: Engine(model, bounds, cost, spill, deliver),
                listener,
                registration,
            )
        )
    finally:
        # In the thread that used them. One that is stuck is left to the end of the process: what it
        # computes with must not be closed under it.
        with suppress(TimeoutError):
            thread.do(model.close).result(GRACE_S)
            thread.do(spill.close).result(GRACE_S)


async def _serve(
    settings: ReplicaSettings,
    description: Description,
    prompts: ChatPrompts,
    model: Model,
    thread: ComputeThread,
    engine_for: Callable[[Callable[[list[Emission]], None]], Engine],
    listener: socket.socket,
    registration: Registration | None,
) -> int:
    desk = Desk(asyncio.get_running_loop())
    engine = engine_for(desk.deliver)
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
        leaving=Leaving.at_signals(),
    )
    server = _Server(
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

    engine.start(thread, died)
    die_when_stuck(lambda: engine.is_stuck)
    _say_ready(listener)
    async with asyncio.TaskGroup() as tasks:
        beside = [tasks.create_task(_leave(served, server, settings.drain_s))]
        if registration is not None:
            report = _Report(registration, settings, served, listener.getsockname()[1])
            beside.append(tasks.create_task(keep_reporting(registration.registry, report)))
        try:
            await server.serve(sockets=[listener])
        finally:
            for task in beside:
                task.cancel()
            engine.stop(GRACE_S)
    return 1 if deaths else 0


async def _leave(served: Served, server: uvicorn.Server, grace_s: float) -> None:
    """Ends the server once it has been asked to: nothing new begins, what runs may end for a while,
    and the rest is told that it is cut. It goes on elsewhere with the tokens that were said."""
    await served.leaving.asked.wait()
    async with asyncio.TaskGroup() as tasks:
        idle = tasks.create_task(_until_idle(served.engine))
        await served.leaving.grace(grace_s, until=[idle])
        idle.cancel()
    await asyncio.to_thread(served.engine.stop, GRACE_S)
    server.should_exit = True


async def _until_idle(engine: Engine) -> None:
    while engine.counts().n_open:  # noqa: ASYNC110  # the engine's thread has no event for it
        await asyncio.sleep(LOOK_S)


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn would stop listening at once, and cut streams at their end."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Report:
    """What the replica says of itself, whenever it is asked."""

    def __init__(
        self, registration: Registration, settings: ReplicaSettings, served: Served, port: int
    ) -> None:
        self._served = served
        self._fixed = ReplicaReport(
            name=registration.name or f"{socket.gethostname()}:{port}",
            incarnation=secrets.token_hex(8),
            url=registration.url or f"http://{settings.host}:{port}",
            model=served.description.served_id,
            slots=settings.n_slots,
            pool=registration.pool,
            window=served.model.limits.window_tokens,
        )

    def __call__(self) -> ReplicaReport:
        now = self._served.engine.counts()
        held = now.n_blocks - now.n_blocks_free - now.n_blocks_idle
        return replace(
            self._fixed,
            state="draining" if self._served.leaving.asked.is_set() else "ready",
            running=now.n_running,
            waiting=now.n_waiting,
            owed_tokens=now.n_owed_tokens,
            tokens_done=now.n_computed_tokens,
            prefill_per_s=now.prefill_per_s or None,
            cache_used_share=held / max(1, now.n_blocks),
            cache_hit_share=now.n_prefix_hits / now.n_prompt_tokens
            if now.n_prompt_tokens
            else None,
            generated_tokens=now.n_generated_tokens,
        )


def _say_ready(listener: socket.socket) -> None:
    """One line for whoever started us; connections wait in the backlog from here on."""
    listener.listen(BACKLOG)
    host, port = listener.getsockname()[:2]
    sys.stdout.write(json.dumps({"ready": True, "host": host, "port": port}) + "\n")
    sys.stdout.flush()


def _engine_settings(settings: ReplicaSettings, model: Model, block_bytes: int) -> EngineSettings:
    block_tokens = model.limits.block_tokens
    n_blocks = model.limits.n_cache // block_tokens
    return EngineSettings(
        steps=StepBounds(
            settings.n_slots,
            settings.step_target_s,
            n_batch=model.limits.n_batch,
            n_mixed=model.limits.n_mixed,
        ),
        cache=CacheLimits(
            n_blocks,
            block_tokens,
            n_idle=int(n_blocks * model.limits.idle_share),
            n_host=settings.host_bytes // block_bytes,
            n_disk=settings.disk_bytes // block_bytes,
        ),
        n_anchors=N_ANCHORS,
        queue=QueueBounds(settings.n_queue, settings.n_queue_tokens),
    )


def _opened(settings: ReplicaSettings, description: Description) -> Model:
    wanted = ModelSettings(
        threads=settings.threads or len(os.sched_getaffinity(0)),
        n_cache=settings.n_cache,
        n_sequences=2 * settings.n_slots + N_ANCHORS,
        n_batch=max(settings.batch_tokens, settings.n_slots),
    )
    if settings.arithmetic == "llama.cpp":
        return LlamaModel(settings.folder, description, wanted)
    # Only here: it brings numpy, which llama.cpp does without.
    from tertulia.replica.openvino import OpenVinoModel

    return OpenVinoModel(settings.folder, description, wanted)
