"""Every test of this folder runs on every back end that has the part it asks for: a fresh store,
a clock that stands still where it is ours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tertulia.backends.memory import MemoryBackend
from tertulia.backends.migrations.sqlite import migrate
from tertulia.backends.valkey import ValkeyBackend
from tertulia.drills.postgres_server import PostgresServer
from tertulia.drills.valkey_server import ValkeyServers
from tertulia.ports import Log
from tests.conformance.postgres import Connections, running_server, with_memory, with_valkey
from tests.conformance.world import (
    BACKENDS,
    FLEETS,
    LOGS,
    VALKEYS,
    Backend,
    FleetParts,
    ManualClock,
    memory_parts,
    open_sqlite,
    valkey_parts,
)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file that is migrated and holds nothing."""
    path = tmp_path_factory.mktemp("empty") / "tertulia.db"
    migrate(path)
    return path


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A real server, started by the first test that asks for it."""
    with running_server() as server:
        yield server


@pytest.fixture(scope="module")
async def connections(anyio_backend: str) -> AsyncIterator[Connections]:
    """Those of the list: who looks at connections themselves opens others."""
    made = Connections()
    yield made
    await made.close()


@pytest.fixture(params=BACKENDS)
async def backend(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    clock: ManualClock,
    empty_file: Path,
    connections: Connections,
) -> AsyncIterator[Backend]:
    opened = await _open(request, tmp_path, clock, empty_file, connections)
    yield opened
    await opened.close()


@pytest.fixture(params=LOGS)
async def log(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    clock: ManualClock,
    empty_file: Path,
    connections: Connections,
) -> AsyncIterator[Log]:
    """The log alone, wherever it is kept."""
    if request.param in VALKEYS:
        valkey = await ValkeyBackend.open(_emptied(request).urls)
        yield valkey.log
        await valkey.close()
    else:
        opened = await _open(request, tmp_path, clock, empty_file, connections)
        yield opened.log
        await opened.close()


@pytest.fixture(params=FLEETS)
async def fleet(
    request: pytest.FixtureRequest, anyio_backend: str, clock: ManualClock, patient_hints: None
) -> AsyncIterator[FleetParts]:
    """Bell, homes, registry and rung, twice where two processes can share them."""
    if request.param not in VALKEYS:
        yield memory_parts(clock)
        return
    servers = _emptied(request)
    here, there = [await ValkeyBackend.open(servers.urls) for _ in range(2)]
    yield valkey_parts(here, there, servers)
    await here.close()
    await there.close()


async def _open(
    request: pytest.FixtureRequest,
    folder: Path,
    clock: ManualClock,
    empty_file: Path,
    connections: Connections,
) -> Backend:
    if request.param == "memory":
        return MemoryBackend(clock)
    if request.param == "sqlite":
        return open_sqlite(folder, clock, empty_file)
    server: PostgresServer = request.getfixturevalue("postgres_server")
    database = await connections.to_empty(server.url, clock)
    if request.param == "fleet":
        return await with_valkey(database, _emptied(request).urls)
    return with_memory(database, clock)


def _emptied(request: pytest.FixtureRequest) -> ValkeyServers:
    name = "valkey_cluster" if request.param == "valkey-cluster" else "valkey_server"
    servers: ValkeyServers = request.getfixturevalue(name)
    for server in servers.servers:
        server.command("FLUSHALL")
    return servers
