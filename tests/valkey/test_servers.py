"""Throw-away servers go with their owner, and come back where they were."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tertulia.drills.servers import ServerFailed
from tertulia.drills.valkey_server import (
    ValkeyServer,
    ValkeyServers,
    primary_and_replica,
    standalone,
)

pytestmark = pytest.mark.processes

OWNER = """
import sys
from pathlib import Path
from tertulia.drills.valkey_server import ValkeyServer
server = ValkeyServer(Path(sys.argv[1])).start()
print(server.port, flush=True)
sys.stdin.read()
"""


def test_a_server_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "one")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        assert owner.stdout is not None
        orphan = ValkeyServer(tmp_path / "one")
        orphan.port = int(owner.stdout.readline())
        assert orphan.command("PING") == b"PONG"
        os.kill(owner.pid, signal.SIGKILL)
    orphan.until(lambda: not _answers(orphan), "end")


def test_a_server_comes_back_at_its_port_and_with_what_it_kept(tmp_path: Path) -> None:
    server = ValkeyServer(tmp_path / "one", ("appendonly", "yes"), ("appendfsync", "always"))
    with ValkeyServers([server.start()]):
        port = server.port
        server.command("SET", "a", "1")
        server.kill()
        assert not _answers(server)
        server.start()
        assert (server.port, server.command("GET", "a")) == (port, b"1")


def test_a_frozen_server_can_be_ended(tmp_path: Path) -> None:
    with standalone(tmp_path) as servers:
        servers[0].freeze()
        servers[0].stop()
        assert not servers[0].running


def test_a_replica_that_fell_behind_lacks_what_came_after(tmp_path: Path) -> None:
    with primary_and_replica(tmp_path) as servers:
        primary, replica = servers.servers
        primary.command("SET", "a", "before")
        replica.fall_behind(primary)
        primary.command("SET", "a", "after")
        primary.kill()
        replica.promote()
        assert replica.command("GET", "a") == b"before"


def test_an_error_is_told(tmp_path: Path) -> None:
    with standalone(tmp_path) as servers, pytest.raises(ServerFailed, match="unknown command"):
        servers[0].command("NOSUCH")


def test_a_server_that_can_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match="nosuch-option"):
        ValkeyServer(tmp_path / "one", ("nosuch-option", "1")).start()


def _answers(server: ValkeyServer) -> bool:
    try:
        return bool(server.command("PING") == b"PONG")
    except (OSError, ServerFailed):
        return False
