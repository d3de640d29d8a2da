"""A throw-away fleet in one folder: real servers, real gateways, workers and replicas.

Everything listens on loopback and ends with the program that started it. It must never touch a
process or a store that it did not start.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import httpx2

from tertulia.drills.loopback import loopback
from tertulia.drills.postgres_server import PostgresServer
from tertulia.drills.processes import Role, tertulia
from tertulia.drills.valkey_server import ValkeyServer
from tertulia.listening import free_port
from tertulia.replica.main import KEY_VARIABLE

# Python, a database and an engine start at once on what may be a small machine.
_START_S: Final = 90.0
_LOOK_S: Final = 0.05
_ANSWER_S: Final = 3.0

NOTHING: Final[Mapping[str, str]] = {}
# What the engines of a drill want of clients; they listen on loopback alone.
REPLICA_KEY: Final = "of-a-drill"


class FleetFailed(Exception):
    """The fleet did not come up; the message has the last words of what did not."""


@dataclass(frozen=True, slots=True)
class ReplicaTable:
    """A replica as the settings name it, and the command that starts it.

    `{port}` in the command is where it must listen.
    """

    model: str
    vocabulary: Path
    slots: int = 8
    engine: str = "vllm"
    trusted: bool = False
    command: tuple[str, ...] = ()


def small_engine(models_dir: Path, served_id: str) -> ReplicaTable:
    """The small real model on one thread."""
    command = tertulia(
        *("replica", "small", "--models-dir", str(models_dir), "--port", "{port}"),
        *("--threads", "1", "--slots", "8", "--cache-memory-mb", "64"),
    )
    return ReplicaTable(served_id, models_dir / "small", engine="tertulia", command=tuple(command))


@dataclass(slots=True)
class DrillFleet:
    """The fleet's parts. Whatever a drill kills it starts again from here."""

    folder: Path
    postgres: PostgresServer
    valkey: ValkeyServer
    gateways: list[Role] = field(default_factory=list)
    workers: list[Role] = field(default_factory=list)
    replicas: list[Role] = field(default_factory=list)
    start_s: float = _START_S

    @property
    def config(self) -> Path:
        """The settings of every role."""
        return self.folder / "tertulia.toml"

    @property
    def roles(self) -> list[Role]:
        """Every process of ours, in the order in which they end best."""
        return [*self.gateways, *self.workers, *self.replicas]

    async def ready(self, roles: Sequence[Role] | None = None) -> None:
        """Returns when these (or all) say that they are ready; FleetFailed when one does not."""
        async with loopback(_ANSWER_S) as http:
            for role in self.roles if roles is None else roles:
                await self._ready(http, role)

    async def _ready(self, http: httpx2.AsyncClient, role: Role) -> None:
        path = "/health" if role in self.replicas else "/readyz"
        last = "it did not answer"
        try:
            async with asyncio.timeout(self.start_s):
                while True:
                    if not role.is_up:
                        raise FleetFailed(f"{role.name} ended at its start:\n{role.last_words()}")
                    try:
                        answer = await http.get(role.url + path)
                    except httpx2.HTTPError:
                        pass
                    else:
                        if answer.status_code == 200:
                            return
                        last = answer.text
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            late = f"{role.name} was not ready after {self.start_s:.0f} s ({last})"
            raise FleetFailed(f"{late}:\n{role.last_words()}") from None


@contextmanager
def a_folder(name: str) -> Iterator[Path]:
    """A temporary folder that the database can reach, which as root runs as somebody else."""
    with TemporaryDirectory(prefix=f"tertulia-{name}-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        folder.chmod(0o711)  # who knows a name in it may pass; nobody else may look
        yield folder


@asynccontextmanager
async def a_fleet(
    folder: Path,
    replicas: Sequence[ReplicaTable],
    *,
    gateways: int = 2,
    workers: int = 2,
    toml: str = "",
    environment: Mapping[str, str] = NOTHING,
    start_s: float = _START_S,
) -> AsyncGenerator[DrillFleet, None]:
    """A fleet in this folder that is ready; everything of it has ended when the block has.

    `toml` is appended to the settings; `environment` wins over them in gateways and workers. Each
    process has `start_s` to get ready.
    """
    postgres, valkey = PostgresServer(folder / "postgres"), ValkeyServer(folder / "valkey")
    fleet = DrillFleet(folder, postgres, valkey, start_s=start_s)
    try:
        await asyncio.gather(asyncio.to_thread(postgres.start), asyncio.to_thread(valkey.start))
        _plan(fleet, replicas, gateways, workers, toml)
        for role in (*fleet.gateways, *fleet.workers):
            role.environment.update(environment)
        for role in fleet.roles:
            await role.start()
        await fleet.ready()
        yield fleet
    finally:
        await _end(fleet)


async def _end(fleet: DrillFleet) -> None:
    """Nothing here is worth a graceful end: whatever it holds is thrown away."""
    for role in fleet.roles:
        await role.kill()
    await asyncio.to_thread(fleet.valkey.kill)
    await asyncio.to_thread(fleet.postgres.kill)


def _plan(
    fleet: DrillFleet, replicas: Sequence[ReplicaTable], gateways: int, workers: int, toml: str
) -> None:
    tables = []
    for n, table in enumerate(replicas):
        role = _role(fleet, f"replica-{n + 1}", table.command)
        role.environment[KEY_VARIABLE] = REPLICA_KEY
        fleet.replicas.append(role)
        tables.append(_table(role, table))
    _write_privately(fleet.config, _settings(fleet, tables, toml))
    shared = ["--config", str(fleet.config)]
    for n in range(gateways):
        role = _role(fleet, f"gateway-{n + 1}", tertulia("gateway", *shared, "--port", "{port}"))
        fleet.gateways.append(role)
    for n in range(workers):
        command = tertulia("worker", *shared, "--health-port", "{port}")
        role = _role(fleet, f"worker-{n + 1}", command)
        fleet.workers.append(role)


def _role(fleet: DrillFleet, name: str, command: Sequence[str]) -> Role:
    port = free_port()
    words = [word.replace("{port}", str(port)) for word in command]
    return Role(name, words, fleet.folder / f"{name}.log", f"http://127.0.0.1:{port}")


def _settings(fleet: DrillFleet, tables: Sequence[str], toml: str) -> str:
    return f"""\
data_dir = "{fleet.folder / "data"}"
log_format = "json"
[server]
registration = "closed"
[models]
embedded = false
large = "off"
[fleet]
database = "{fleet.postgres.url}"
valkey = ["{fleet.valkey.url}"]
{"".join(tables)}{toml}"""


def _table(role: Role, table: ReplicaTable) -> str:
    return f"""\
[[replicas]]
name = "{role.name}"
pool = "small"
model = "{table.model}"
url = "{role.url}"
slots = {table.slots}
vocabulary = "{table.vocabulary}"
key = "{REPLICA_KEY}"
trusted = {str(table.trusted).lower()}
engine = "{table.engine}"
"""


def _write_privately(path: Path, text: str) -> None:
    """For the owner alone: it has the address of the database."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
