"""The throw-away Postgres: it comes back on its port with its data, and dies with its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import asyncpg
import pytest

from tertulia.drills import postgres_server
from tertulia.drills.postgres_server import PostgresServer
from tertulia.drills.servers import ServerFailed, comes_true, is_alive

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

GONE_S = 10.0
OWNER = """
import sys, threading
from pathlib import Path
from tertulia.drills.postgres_server import PostgresServer
server = PostgresServer(Path(sys.argv[1])).start()
pids = server.pids()
if sys.argv[2] == "frozen":
    server.freeze()
print(*pids, flush=True)
threading.Event().wait()
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """One that the server's user can reach, unlike pytest's own; its data is made once for all."""
    made = Path(tempfile.mkdtemp(prefix="tertulia-postgres-"))
    yield made
    rmtree(made)


async def test_it_comes_back_on_its_port_with_what_it_acknowledged(
    folder: Path, anyio_backend: str
) -> None:
    with PostgresServer(folder) as server:
        url = server.url
        await _ask(url, "CREATE TABLE kept AS SELECT 7 AS number")
        for end in (server.kill, server.stop):
            end()
            assert not server.running
            with pytest.raises(OSError, match="Connect call failed"):
                await _ask(url, "SELECT 1")
            server.start()
            assert server.url == url
            assert await _ask(url, "SELECT number FROM kept") == 7
        assert await _ask(url, "SELECT current_setting('fsync')") == "on"
        server.freeze()
        with pytest.raises(TimeoutError):
            await asyncpg.connect(url, timeout=0.3)
        server.thaw()
        assert await _ask(url, "SELECT number FROM kept") == 7


@pytest.mark.parametrize("state", ["running", "frozen"])
def test_it_ends_with_its_owner_however_that_one_ends(folder: Path, state: str) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder), state], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    pids = [int(pid) for pid in owner.stdout.readline().split()]
    assert len(pids) > 3
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    assert comes_true(lambda: not any(map(is_alive, pids)), within_s=GONE_S), pids


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs it as somebody else")
def test_a_folder_that_its_user_can_not_reach_is_refused(folder: Path) -> None:
    (folder / "private").mkdir(mode=0o700)
    with pytest.raises(ServerFailed, match="can't be reached"):
        PostgresServer(folder / "private" / "server").start()


def test_the_wheel_has_programs_that_run() -> None:
    programs = postgres_server.programs_in_wheel()
    assert postgres_server._version_of(programs) >= (16,)
    assert postgres_server._version_of(programs / "nowhere") == ()


def test_what_the_server_said_is_in_the_error(folder: Path) -> None:
    with pytest.raises(ServerFailed, match="no_such_setting"):
        PostgresServer(folder, ("no_such_setting", "1")).start()


async def _ask(url: str, question: str) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()
