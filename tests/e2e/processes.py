"""The real service as real processes, for tests that kill it: started, killed and started again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import httpx2

from tertulia.drills.loopback import loopback
from tertulia.listening import free_port

ROOT = Path(__file__).resolve().parents[2]
START_S = 90.0  # as drills wait: on two busy cores everything starts slowly

Victim = Literal["engine", "lanes", "tree"]


def installed_models() -> Path:
    """Where the models are installed on this machine."""
    return Path(os.environ.get("TERTULIA_MODELS_DIR") or ROOT / ".tertulia" / "models").resolve()


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
    """`tertulia serve` on a port and a folder of its own.

    Its replica is the engine that it starts by itself, or else `fake`, which runs beside it.
    """

    folder: Path
    toml: str
    port: int = field(default_factory=free_port)
    key: str = ""
    fake: Program | None = None
    fake_port: int = 0

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
        if self.fake is not None:
            self.fake.start()
        self.program.start()

    async def ready(self) -> None:
        """Returns when the service says that it is; fails with its log when it does not."""
        until = time.monotonic() + START_S
        async with loopback(2) as http:
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

    def kill(self, victim: Victim) -> bool:
        """`kill -9`, and starts again what nobody else does; false if it is not up just now."""
        if victim == "lanes" or (victim == "engine" and self.fake is None):
            return self.kill_child("lanes" if victim == "lanes" else "replica")
        if victim == "tree":
            self._kill_tree()
            self.program.start()
        if self.fake is not None:
            self.fake.kill()
            self.fake.start()
        return True

    async def pace(self, step_s: float) -> None:
        """How long a fake takes for a token from now on, as soon as it listens; a real engine takes
        as long as it takes."""
        if self.fake is None:
            return
        async with asyncio.timeout(START_S), loopback(2) as http:
            while True:
                try:
                    url = f"http://127.0.0.1:{self.fake_port}/pace"
                    await http.post(url, json={"step_s": step_s})
                    return
                except httpx2.TransportError:
                    await asyncio.sleep(0.02)  # it is being started again

    def _kill_tree(self) -> None:
        """Everything at once; returns when all of it is gone."""
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
        if self.fake is not None:
            self.fake.end()


def fake_service(folder: Path, toml: str, *, step_s: float) -> Service:
    """A service over `tests.fake_replica`, which takes `step_s` for a token on every machine."""
    port, model = free_port(), installed_models() / "small"
    toml = f"""
[models]
embedded = false
large = "off"
{toml}
[[replicas]]
name = "fake"
pool = "small"
model = "fake-1"
url = "http://127.0.0.1:{port}"
slots = 8
vocabulary = "{model}"
"""
    command = [sys.executable, "-m", "tests.fake_replica", "--port", str(port)]
    command += ["--model-dir", str(model), "--step-s", str(step_s)]
    return Service(folder, toml, fake=Program(command, folder / "fake.log"), fake_port=port)


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
