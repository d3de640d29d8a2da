"""What holds for every test: one event loop kind, and no process outlives the run.

It must stay small: a fixture for one folder lives in that folder.
"""

import os
import secrets
from collections.abc import Iterator
from threading import Event

import pytest
from hypothesis import settings

from scripts import leftovers

# A busy machine is no failure; and a failure prints what replays it.
settings.register_profile("tertulia", deadline=None, print_blob=True)
settings.load_profile("tertulia")

MARK = "TEST_SESSION_MARK"
GRACE_S = 3.0  # a killed process may take a moment to go
POLL_S = 0.1


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests marked `anyio` run on asyncio alone: it is what the service runs on."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def _no_process_outlives_the_tests() -> Iterator[None]:
    mark = secrets.token_hex(8)
    os.environ[MARK] = mark
    yield
    del os.environ[MARK]
    never = Event()
    for _ in range(int(GRACE_S / POLL_S)):
        left = leftovers.find(MARK, mark)
        if not left:
            return
        never.wait(POLL_S)
    leftovers.end(left)
    pytest.fail("tests left processes running: " + "; ".join(one.command for one in left))
