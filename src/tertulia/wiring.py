"""Puts real parts together: the only place that names concrete back ends.

It decides nothing about turns; it opens, connects, runs and closes.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from tertulia.backends.bell import LocalBell
from tertulia.backends.checks import RulesChecks
from tertulia.backends.clock import SystemClock, SystemIds
from tertulia.backends.replicas import HttpReplicas
from tertulia.backends.replicas.fleet import Fleet, FleetSource, ReplicaAddress
from tertulia.backends.splitting import split_sentences
from tertulia.backends.sqlite import SqliteBackend
from tertulia.backends.vocabulary import ModelVocabulary, VocabularyBroken, load_vocabulary
from tertulia.config import Settings
from tertulia.core.plans import Plan, Plans
from tertulia.core.types import Limits, ModelState
from tertulia.gateway.app import create_app
from tertulia.gateway.desk import Desk, GatewayRules
from tertulia.gateway.patience import PatientHttp
from tertulia.gateway.streams import OpenStreams
from tertulia.gateway.welcome import first_admin, leave_key, sign_in_token
from tertulia.listening import BACKLOG, Listening
from tertulia.replica.catalogue import model_named
from tertulia.worker.desk import WorkerDesk, WorkerRules
from tertulia.worker.loop import Worker

# A page asks again within this time; a connection that rests longer is not worth its memory.
_IDLE_S = 30
# Open streams are closed at an event border well within this; then they resume elsewhere.
_DRAIN_S = 5


async def run_lanes(
    settings: Settings, listening: Listening, say_link: Callable[[str], None] | None
) -> None:
    """Gateway and worker in one process over one SQLite file, until SIGTERM or SIGINT.

    `say_link` is given a link that signs the administrator in, once.
    """
    clock = SystemClock()
    store = SqliteBackend(settings.database, clock)
    try:
        await store.queue.restarted()
        await store.conversations.prompt_text(settings.prompt_version, store=settings.prompt.system)
        gateway, worker, replicas = _desks(settings, clock, store)
        admin = await first_admin(gateway)
        if admin is not None:
            await leave_key(gateway, admin, settings.key_file)
            if say_link is not None:
                say_link(f"{listening.address}/#signin={await sign_in_token(gateway, admin)}")
        await _serve(gateway, worker, replicas, listening)
    finally:
        await store.close()


async def _serve(
    gateway: Desk, worker: WorkerDesk, replicas: HttpReplicas, listening: Listening
) -> None:
    server = _Server(
        uvicorn.Config(
            create_app(gateway),
            loop="none",
            http=PatientHttp,
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            date_header=True,
            backlog=BACKLOG,
            timeout_graceful_shutdown=_DRAIN_S,
            timeout_keep_alive=_IDLE_S,
        )
    )

    def leave() -> None:
        gateway.streams.draining = True
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave)
    async with asyncio.TaskGroup() as tasks:
        others = [
            tasks.create_task(replicas.run()),
            tasks.create_task(Worker(worker).run()),
            tasks.create_task(gateway.streams.beat(gateway.presence, gateway.clock)),
        ]
        await server.serve(sockets=[listening.socket])
        for other in others:
            other.cancel()


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn raises them again before anything could be put away."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _desks(
    settings: Settings, clock: SystemClock, store: SqliteBackend
) -> tuple[Desk, WorkerDesk, HttpReplicas]:
    vocabularies = Vocabularies(settings)
    replicas = HttpReplicas(
        FleetSource(_fixed_fleet(settings), settings.fleet_file),
        vocabulary=vocabularies.of,
        clock=clock,
        pace_s=settings.worker.pace_ms / 1000,
    )
    plans = _plans(settings)
    bell, checks = LocalBell(), RulesChecks()
    gateway = Desk(
        turns=store.turns,
        presence=store.presence,
        log=store.log,
        bell=bell,
        conversations=store.conversations,
        messages=store.messages,
        accounts=store.accounts,
        sessions=store.sessions,
        api_keys=store.api_keys,
        replicas=replicas,
        checks=checks,
        vocabulary=vocabularies.of,
        clock=clock,
        new_id=SystemIds(clock),
        streams=OpenStreams(),
        plans=plans,
        rules=GatewayRules(
            system_prompt=settings.prompt.system,
            prompt_version=settings.prompt_version,
            body_bytes=settings.server.body_bytes,
            streams_per_user=settings.server.streams_per_user,
            registration_open=settings.server.registration == "open",
            secure_cookies=settings.server.secure_cookies,
            hosts=settings.server.known_hosts,
        ),
    )
    worker = WorkerDesk(
        turns=store.turns,
        queue=store.queue,
        log=store.log,
        bell=bell,
        conversations=store.conversations,
        messages=store.messages,
        replicas=replicas,
        checks=checks,
        vocabulary=vocabularies.of,
        split=split_sentences,
        clock=clock,
        plans=plans,
        rules=WorkerRules(
            lease_s=settings.worker.lease_s,
            replies=settings.worker.replies,
            sentence_tokens=settings.worker.sentence_tokens,
            log_kept_s=settings.worker.log_kept_s,
        ),
    )
    return gateway, worker, replicas


def _fixed_fleet(settings: Settings) -> Fleet:
    """The replicas of the configuration; models in the order that `auto` prefers."""
    replicas = tuple(
        ReplicaAddress(
            name=table.name,
            model=table.model,
            url=str(table.url).rstrip("/"),
            slots=table.slots,
            key=table.key.get_secret_value() if table.key else None,
            trusted=table.trusted,
            priorities=table.priorities,
            own_engine=table.own_engine,
        )
        for table in settings.replicas
    )
    served = {(table.pool, table.model): table for table in settings.replicas}
    models = tuple(
        ModelState(name=pool, served=model, state="starting")
        for pool, model in sorted(served, key=lambda pair: pair[0])
    )
    return Fleet(models, replicas)


def _plans(settings: Settings) -> Plans:
    return Plans(
        (
            name,
            Plan(
                name=name,
                window_tokens=table.window_tokens,
                answer_tokens=table.answer_tokens,
                limits=Limits(table.tokens_per_day, table.replies_running),
                abandon_s=table.abandon_s,
            ),
        )
        for name, table in settings.plans.items()
    )


class Vocabularies:
    """Every model's vocabulary, each read once. What is not installed yet speaks as another."""

    def __init__(self, settings: Settings):
        self._folders: dict[str, Path] = {}
        self._loaded: dict[Path, ModelVocabulary] = {}
        for table in settings.replicas:
            self._folders.setdefault(table.model, table.vocabulary)
            self._folders.setdefault(table.pool, table.vocabulary)
        if settings.models.embedded:
            for name in ("small", settings.models.large):
                if name != "off":
                    folder = settings.models_folder / name
                    self._folders[model_named(name).served_id] = folder
                    self._folders["small" if name == "small" else "large"] = folder

    def of(self, model: str) -> ModelVocabulary:
        """The model's vocabulary, or one of a model that is there."""
        folder = self._folders.get(model)
        others = [f for f in self._folders.values() if f != folder]
        for candidate in ([folder] if folder else []) + others:
            if candidate in self._loaded:
                return self._loaded[candidate]
            if (candidate / "tokenizer.json").is_file():
                self._loaded[candidate] = load_vocabulary(candidate)
                return self._loaded[candidate]
        raise VocabularyBroken(f"no model is installed for {model!r}: run `tertulia doctor`")
