"""Every test of this folder runs on every back end: a fresh store, a clock that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tertulia.backends.migrations import migrate
from tests.conformance.world import BACKENDS, Backend, ManualClock, open_backend


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file that is migrated and holds nothing."""
    path = tmp_path_factory.mktemp("empty") / "tertulia.db"
    migrate(path)
    return path


@pytest.fixture(params=BACKENDS)
async def backend(
    request: pytest.FixtureRequest,
    anyio_backend: str,
    tmp_path: Path,
    clock: ManualClock,
    empty_file: Path,
) -> AsyncIterator[Backend]:
    opened = open_backend(request.param, tmp_path, clock, empty_file)
    yield opened
    await opened.close()
