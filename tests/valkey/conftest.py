"""Servers that a test breaks are its own; those that it only uses are shared."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tertulia.backends.valkey import BUDGET_S, ValkeyBackend
from tertulia.drills.valkey_server import ValkeyServer, ValkeyServers, standalone

Open = Callable[..., Awaitable[ValkeyBackend]]


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A server for one test alone."""
    with standalone(tmp_path) as servers:
        yield servers[0]


@pytest.fixture
def server(valkey_server: ValkeyServers) -> ValkeyServer:
    """The shared server, emptied."""
    valkey_server[0].command("FLUSHALL")
    return valkey_server[0]


@pytest.fixture
async def opened(anyio_backend: str, patient_hints: None) -> AsyncIterator[Open]:
    """Opens back ends as `ValkeyBackend.open` does, and closes them after the test."""
    backends: list[ValkeyBackend] = []

    async def open_(*urls: str, budget_s: float = BUDGET_S) -> ValkeyBackend:
        backends.append(await ValkeyBackend.open(urls, budget_s=budget_s))
        return backends[-1]

    yield open_
    for backend in backends:
        await backend.close()
