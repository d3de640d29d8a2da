"""The real service as real processes, for tests that kill it: started, killed and started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0


def installed_models() -> Path:
    """Where the models are installed on this machine."""
    return Path(os.environ.get("TERTULIA_MODELS_DIR") or ROOT / ".tertulia" / "models").resolve()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Program:
    """One process that is started again after a kill, with the same arguments."""

    command: list[str]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,  # held open: a fake replica ends with its reader
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, **self.environment},
            )

    def kill(self) -> None:
        """`kill -9`, and waits until it is gone."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._let_go()

    def end(self) -> None:
        """Asks it to end; kills what does not."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.terminate()
        try:
            self.process.wait(20)
            self._let_go()
        except subprocess.TimeoutExpired:
            self.kill()

    def _let_go(self) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.close()


@dataclass
class Service:
    """`tertulia serve` on a port and a folder of its own."""

    folder: Path
    toml: str
    port: int = field(default_factory=free_port)
    key: str = ""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "tertulia.toml"
        config.write_text(
            f'data_dir = "{self.folder}"\nmodels_dir = "{installed_models()}"\n'
            f'log_format = "json"\n[server]\nport = {self.port}\n{self.toml}'
        )
        command = [sys.executable, "-m", "tertulia", "serve", "--config", str(config)]
        self.program = Program(command, self.folder / "serve.log")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def database(self) -> Path:
        return self.folder / "tertulia.sqlite3"

    def start(self) -> None:
        self.program.start()

    async def ready(self) -> None:
        """Returns when the service says that it is; fails with its log when it does not."""
        until = time.monotonic() + START_S
        async with httpx2.AsyncClient(trust_env=False, timeout=2) as http:
            while time.monotonic() < until:
                try:
                    if (await http.get(self.url + "/readyz")).status_code == 200:
                        self.key = (self.folder / "run" / "local.key").read_text().strip()
                        return
                except (httpx2.HTTPError, FileNotFoundError):
                    pass
                await asyncio.sleep(0.05)
        raise AssertionError(f"not ready:\n{self.program.log.read_text()[-3000:]}")

    def child(self, word: str) -> int | None:
        """The process id of the supervised child whose command line has `word`."""
        assert self.program.process is not None
        for pid in _children(self.program.process.pid):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if word in line:
                return pid
        return None

    def kill_child(self, word: str) -> bool:
        """`kill -9` of one supervised child; false if it is not up just now."""
        pid = self.child(word)
        if pid is None:
            return False
        os.kill(pid, signal.SIGKILL)
        return True

    def kill_tree(self) -> None:
        """`kill -9` of everything at once; returns when all of it is gone."""
        assert self.program.process is not None
        pids = [self.program.process.pid, *_children(self.program.process.pid)]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.program.kill()  # it is dead; this waits for it and closes what we hold
        until = time.monotonic() + 5
        while any(Path(f"/proc/{pid}").exists() for pid in pids[1:]):
            assert time.monotonic() < until, "a killed child is still there"
            time.sleep(0.01)

    def end(self) -> None:
        self.program.end()


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        return [int(child) for child in path.read_text().split()]
    except OSError:
        return []


def rows(database: Path, sql: str, *values: object) -> list[tuple[object, ...]]:
    """What a query finds in the service's database, read beside the running service."""
    import sqlite3

    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


def as_json(text: str) -> dict[str, object]:
    """One JSON object."""
    value: dict[str, object] = json.loads(text)
    return value
