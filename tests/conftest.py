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
from tertulia.drills.valkey_server import ValkeyServers, cluster, standalone

# A busy machine is no failure. The same tree gives the same verdict each time; new examples are
# looked for by `make properties`, whose failures print what replays them.
settings.register_profile("tertulia", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True, max_examples=2000)
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


@pytest.fixture
def patient_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks Valkey for a hint waits a tenth of a second; a busy machine may take longer."""
    for part in ("homes", "registry"):
        monkeypatch.setattr(f"tertulia.backends.valkey.{part}._BUDGET_S", 10.0)


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServers]:
    """One Valkey server that all tests share; who uses it empties it first."""
    with standalone(tmp_path_factory.mktemp("valkey")) as servers:
        yield servers


@pytest.fixture(scope="session")
def valkey_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServers]:
    """Three servers that share the slots; who uses them empties them first."""
    with cluster(tmp_path_factory.mktemp("valkey-cluster")) as servers:
        yield servers
