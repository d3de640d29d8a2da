"""Every test of this folder runs on every back end: a fresh store, a clock that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.world import BACKENDS, Backend, ManualClock, open_backend


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=BACKENDS)
async def backend(
    request: pytest.FixtureRequest, anyio_backend: str, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Backend]:
    opened = open_backend(request.param, tmp_path, clock)
    yield opened
    await opened.close()
