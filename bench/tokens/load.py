"""The load of the token path: mockllm as the engine, sseload as the clients, both on one core.

The service under test has the other core for itself; its databases run with the load.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tertulia.listening import free_port

ROOT: Final = Path(__file__).resolve().parent.parent.parent
OWN_CORE: Final = "0"
LOAD_CORE: Final = "1"

# At 30 tokens a second, as fast as people read quickly, 300 last 10 s: about as long as an answer.
TOKENS: Final = 300
RATE: Final = 30
_MOCK_TTFT_MS: Final = 50
# Of the time between two tokens. Without it the replies would keep step with the paced reads.
_MOCK_JITTER_PERCENT: Final = 20
_WARM_S: Final = 1.0
_TIMEOUT_S: Final = 50.0  # beyond the length of a reply


# Made before a run: as many streams may the chat's own call have, and some replies to stop.
CONVERSATIONS: Final = 3_000


@dataclass(frozen=True)
class Call:
    """One request, as the load client makes it. `%s` in a header is a number of this run."""

    name: str
    path: str
    body: str
    headers: tuple[str, ...] = ()


CHAT: Final = Call(
    "the chat's own",
    "/v1/conversations/c_bench_{{slot}}/messages",
    '{"content":"hello #R{{id}}#"}',
    ("Idempotency-Key: bench-{{id}}-%s",),
)
OPENAI: Final = Call(
    "/v1/chat/completions",
    "/v1/chat/completions",
    '{"model":"large","stream":true,"max_tokens":{{tokens}},'
    '"messages":[{"role":"user","content":"#R{{id}}# hello"}]}',
)


@dataclass(frozen=True)
class Target:
    """A running service: where it listens, what it is asked, which processes are counted."""

    port: int
    pids: tuple[int, ...]
    call: Call
    key: str = ""


class Tools:
    """The compiled programs and a running mock, whose replies have so many tokens."""

    def __init__(self, folder: Path, tokens: int = TOKENS) -> None:
        self.folder = folder
        self.tokens = tokens
        folder.chmod(0o755)
        self.mock_port = free_port()
        for name in ("mockllm", "sseload"):
            source = ROOT / "bench" / "tools" / f"{name}.c"
            subprocess.run(["gcc", "-O2", "-o", str(folder / name), str(source)], check=True)

    @property
    def reply_s(self) -> float:
        """How long a reply lasts."""
        return self.tokens / RATE

    def new_folder(self, name: str) -> Path:
        """An empty folder, which a database server that may not run as root can reach."""
        made = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))
        made.chmod(0o755)
        return made

    @contextmanager
    def mock(self, *, sentence_tokens: int) -> Iterator[None]:
        """The engine. A sentence ends after so many tokens."""
        command = [self.folder / "mockllm", "-p", self.mock_port, "-t", _MOCK_TTFT_MS, "-r", RATE]
        command += ["-n", self.tokens, "-s", sentence_tokens]
        command += ["-m", "mock", "-j", _MOCK_JITTER_PERCENT]
        with running(LOAD_CORE, command, self.folder / "mock.log"):
            wait_until_ready(self.mock_port, "/health")
            yield

    def mock_says(self, path: str) -> str:
        """What the mock answers to a GET."""
        address = f"http://127.0.0.1:{self.mock_port}{path}"
        with urllib.request.urlopen(address, timeout=5) as answer:
            said: bytes = answer.read()
        return said.decode()

    def load(
        self,
        target: Target,
        streams: int,
        *,
        window_s: float = 8.0,
        ramp_s: float | None = None,
        warm_s: float = _WARM_S,
    ) -> dict[str, Any]:
        """The client's report of `streams` replies at a time, each followed by the next. They begin
        spread over the length of one, so that the window has as many ends as beginnings."""
        call, ramp_s = target.call, ramp_s if ramp_s is not None else self.reply_s
        command: list[Any] = [self.folder / "sseload", "-b", call.body]
        command += ["-T", self.reply_s + _TIMEOUT_S]
        command += ["-u", f"http://127.0.0.1:{target.port}{call.path}"]
        command += ["-c", streams, "-t", self.tokens, "-r", ramp_s, "-w", warm_s, "-d", window_s]
        command += ["-k", "-p", ",".join(map(str, target.pids))]
        headers = [*call.headers, *([f"Authorization: Bearer {target.key}"] if target.key else [])]
        for header in headers:
            command += ["-H", header.replace("%s", str(time.time_ns()))]
        words = ["taskset", "-c", LOAD_CORE, *map(str, command)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=180 + 3 * self.reply_s)
        if not done.stdout:
            raise RuntimeError(done.stderr)
        report: dict[str, Any] = json.loads(done.stdout)
        return report


@contextmanager
def running(
    core: str, command: Sequence[Any], log: Path, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """A program on one core, ended with the block. Its output is kept if BENCH_KEEP is a folder."""
    words = ["taskset", "-c", core, *map(str, command)]
    with log.open("ab") as out:
        process = subprocess.Popen(
            words, stdout=out, stderr=out, cwd=ROOT, env={**os.environ, **environment}
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if kept := os.environ.get("BENCH_KEEP"):
            shutil.copy(log, kept)


def wait_until_ready(port: int, path: str) -> None:
    """Returns once there is a 200; RuntimeError after half a minute."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=1) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"nothing got ready at port {port}")
