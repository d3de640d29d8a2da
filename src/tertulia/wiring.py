"""Puts real parts together: the only place that names concrete back ends.

It decides nothing about turns; it opens, connects, runs and closes.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import structlog
import uvicorn

from tertulia.backends.bell import LocalBell
from tertulia.backends.checks import RulesChecks
from tertulia.backends.clock import SystemClock, SystemIds
from tertulia.backends.replicas import HttpReplicas
from tertulia.backends.replicas.fleet import Fleet, FleetSource, ReplicaAddress
from tertulia.backends.splitting import split_sentences
from tertulia.backends.sqlite import SqliteBackend
from tertulia.backends.vocabulary import ModelVocabulary, load_vocabulary
from tertulia.config import Settings
from tertulia.core.plans import Plan
from tertulia.core.types import ApiKey, Limits, ModelState, User
from tertulia.gateway.app import create_app
from tertulia.gateway.auth import KEY_PREFIX, secret_hash
from tertulia.gateway.desk import Desk, GatewayRules
from tertulia.gateway.patience import PatientHttp
from tertulia.gateway.streams import OpenStreams
from tertulia.replica.catalogue import model_named
from tertulia.replica.description import DescriptionUnreadable
from tertulia.worker.desk import WorkerDesk, WorkerRules
from tertulia.worker.loop import Worker

_log = structlog.get_logger(__name__)

ADMIN = "admin"
# Long enough to be found in a terminal the next morning.
_LINK_S = 86_400.0
# Open streams are closed at an event border well within this; then they resume elsewhere.
_DRAIN_S = 5


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the gateway takes connections. An inherited socket outlives a crash of this process,
    so that clients wait a moment instead of being turned away."""

    sockets: tuple[socket.socket, ...]
    address: str


async def run_lanes(settings: Settings, listening: Listening, *, print_link: bool) -> None:
    """Gateway and worker in one process over one SQLite file, until SIGTERM or SIGINT."""
    clock = SystemClock()
    store = SqliteBackend(settings.database, clock)
    try:
        await store.queue.restarted()
        await store.conversations.prompt_text(settings.prompt_version, store=settings.prompt.system)
        gateway, worker, replicas = _desks(settings, clock, store)
        await _welcome(settings, gateway, listening.address, print_link=print_link)
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
            backlog=1024,
            timeout_graceful_shutdown=_DRAIN_S,
            timeout_keep_alive=30,
            h11_max_incomplete_event_size=65_536,
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
        await server.serve(sockets=list(listening.sockets))
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
        FleetSource(_fixed_fleet(settings), fleet_file(settings)),
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


def fleet_file(settings: Settings) -> Path:
    """Where `serve` says what it runs."""
    return settings.run_dir / "fleet.json"


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
        )
        for table in settings.replicas
    )
    served = {(table.pool, table.model): table for table in settings.replicas}
    models = tuple(
        ModelState(name=pool, served=model, state="starting")
        for pool, model in sorted(served, key=lambda pair: pair[0])
    )
    return Fleet(models, replicas)


def _plans(settings: Settings) -> dict[str, Plan]:
    return {
        name: Plan(
            name=name,
            window_tokens=table.window_tokens,
            answer_tokens=table.answer_tokens,
            limits=Limits(table.tokens_per_day, table.replies_running),
            abandon_s=table.abandon_s,
        )
        for name, table in settings.plans.items()
    }


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
        raise DescriptionUnreadable(f"no model is installed for {model!r}: run `tertulia doctor`")


async def _welcome(settings: Settings, desk: Desk, address: str, *, print_link: bool) -> None:
    """Makes the first administrator, a key for the terminal, and prints a one-time link."""
    admin = await desk.accounts.by_name(ADMIN)
    if admin is None:
        if await desk.accounts.count():
            return  # an administrator who was renamed or removed is not made anew
        admin = User(desk.new_id("u"), ADMIN, "admin", "plus", None, desk.clock.now())
        await desk.accounts.add(admin)
    await _local_key(settings, desk, admin)
    if print_link:
        token = secrets.token_urlsafe(32)
        await desk.sessions.add_link(admin.id, secret_hash(token), lasts_s=_LINK_S)
        print(  # noqa: T201  # for the person at the terminal, never for a log
            f"\n  Tertulia is at {address}\n  Sign in once as {ADMIN}: {address}/#signin={token}\n",
            flush=True,
        )


def key_file(settings: Settings) -> Path:
    """The administrator's key for commands on this machine; only its owner may read it."""
    return settings.run_dir / "local.key"


async def _local_key(settings: Settings, desk: Desk, admin: User) -> None:
    path = key_file(settings)
    if path.is_file() and await desk.api_keys.by_secret(secret_hash(path.read_text().strip())):
        return
    secret = KEY_PREFIX + secrets.token_urlsafe(32)
    key = ApiKey(
        id=desk.new_id("key"),
        owner=admin.id,
        name="this machine",
        prefix=secret[:8],
        secret_hash=secret_hash(secret),
        created_at=desk.clock.now(),
    )
    await desk.api_keys.add(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secret)


def listen(host: str, port: int) -> Listening:
    """Binds the gateway's socket; OSError when the address is taken or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
        made.listen(1024)
    except OSError:
        made.close()
        raise
    return listening_on(made)


def listening_on(bound: socket.socket) -> Listening:
    """A socket that is bound already, such as one that was inherited."""
    host, port = bound.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}"
    assert urlsplit(address).port == port
    return Listening((bound,), address)
