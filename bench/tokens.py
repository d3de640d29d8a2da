"""The token path: gateway and worker in one process between a mock engine and a stream load.

Mock and load share one core, the process under test has the other. Reported are tokens per
CPU-second of that process, added latency per token, and how many streams one core carries.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tertulia.backends.clock import SystemClock
from tertulia.backends.sqlite import SqliteBackend
from tertulia.config import load_settings

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / ".tertulia" / "models" / "small"
TOKENS, RATE, SENTENCE = 300, 30, 15


@dataclass(frozen=True)
class Case:
    """One call, as the load client makes it."""

    name: str
    path: str
    body: str
    headers: tuple[str, ...] = ()


CHAT = Case(
    "the chat's own call",
    "/v1/conversations/c_bench_{{slot}}/messages",
    '{"content":"hello #R{{id}}#"}',
    ("Idempotency-Key: bench-{{id}}-%s", "Accept: text/event-stream"),
)
OPENAI = Case(
    "/v1/chat/completions",
    "/v1/chat/completions",
    '{"model":"large","stream":true,"max_tokens":{{tokens}},'
    '"messages":[{"role":"user","content":"#R{{id}}# hello"}]}',
)


def main() -> None:
    """Both calls at 200 streams, then more streams until the added latency grows."""
    streams = [int(n) for n in os.environ.get("BENCH_STREAMS", "200,600").split(",")]
    for case in (CHAT, OPENAI):
        for count in streams:
            print(json.dumps(_summary(case, count, measure(case, count))), flush=True)


def measure(case: Case, streams: int, seconds: float = 12.0) -> dict[str, Any]:
    """The load client's report for one case, with a fresh database."""
    with tempfile.TemporaryDirectory(prefix="tertulia-bench-") as folder:
        programs = _compiled(Path(folder))
        mock_port, port = _free_port(), _free_port()
        config = _configure(Path(folder), mock_port, port)
        key = asyncio.run(_prepare(config, streams))
        load_core, own_core = "1", "0"
        mock = [str(programs / "mockllm"), "-p", str(mock_port), "-t", "50", "-r", str(RATE)]
        mock += ["-n", str(TOKENS), "-s", str(SENTENCE), "-m", "mock"]
        lanes = [sys.executable, "-m", "tertulia", "lanes", "--config", str(config)]
        with (
            _running(["taskset", "-c", load_core, *mock], folder, "mock"),
            _running(["taskset", "-c", own_core, *lanes], folder, "lanes") as process,
        ):
            _wait_ready(port)
            command = ["taskset", "-c", load_core, str(programs / "sseload")]
            command += ["-u", f"http://127.0.0.1:{port}{case.path}", "-b", case.body]
            command += ["-c", str(streams), "-t", str(TOKENS), "-r", "8", "-w", "12"]
            command += ["-d", str(seconds), "-p", str(process.pid), "-T", "60"]
            for header in (*case.headers, f"Authorization: Bearer {key}"):
                command += ["-H", header % time.time_ns() if "%s" in header else header]
            done = subprocess.run(command, capture_output=True, text=True, timeout=180)
            if not done.stdout:
                raise RuntimeError(done.stderr)
            report: dict[str, Any] = json.loads(done.stdout)
            return report


def _summary(case: Case, streams: int, report: dict[str, Any]) -> dict[str, Any]:
    added, ttft, sut = report["added_ms"], report["ttft_ms"], report["sut"]
    return {
        "call": case.name,
        "streams": streams,
        "tok_per_s": report["tok_per_s"],
        "tok_per_cpu_s": sut["tok_per_cpu_s"],
        "cpu_share": sut["cpu_share"],
        "added_ms_p50_p99": [added["p50"], added["p99"]],
        "ttft_ms_p50_p99": [ttft["p50"], ttft["p99"]],
        "rss_mb": sut["rss_mb"],
        "errors": report["errors"]["total"],
        "sample_error": report["sample_error"],
    }


def _compiled(folder: Path) -> Path:
    for name in ("mockllm", "sseload"):
        source = ROOT / "bench" / "tools" / f"{name}.c"
        subprocess.run(["gcc", "-O2", "-o", str(folder / name), str(source)], check=True)
    return folder


def _configure(folder: Path, mock_port: int, port: int) -> Path:
    """A service with the mock as its only replica and plans that never say no."""
    path = folder / "tertulia.toml"
    path.write_text(f"""
data_dir = "{folder}"
log_format = "json"
[server]
port = {port}
streams_per_user = 100000
[models]
embedded = false
large = "off"
[worker]
replies = 4000
pace_ms = {os.environ.get("BENCH_PACE_MS", "100")}
[plans.plus]
answer_tokens = {TOKENS}
tokens_per_day = 1000000000
replies_running = 100000
[[replicas]]
name = "mock"
pool = "large"
model = "mock"
url = "http://127.0.0.1:{mock_port}"
slots = 4000
vocabulary = "{MODEL}"
trusted = true
""")
    return path


async def _prepare(config: Path, streams: int) -> str:
    """An administrator's key and a conversation for each stream, made through the store itself."""
    from tertulia.core.types import ApiKey, User
    from tertulia.gateway.auth import secret_hash

    settings = load_settings(config)
    clock = SystemClock()
    store = SqliteBackend(settings.database, clock)
    try:
        await store.accounts.add(User("u_bench", "bench", "admin", "plus", None, clock.now()))
        key = ApiKey("key_bench", "u_bench", "bench", "tk_", secret_hash("tk_bench"), clock.now())
        await store.api_keys.add(key)
        version = settings.prompt_version
        await store.conversations.prompt_text(version, store=settings.prompt.system)
        for slot in range(streams):
            name = f"c_bench_{slot}"
            await store.conversations.create("u_bench", name, key=None, prompt_version=version)
    finally:
        await store.close()
    return "tk_bench"


@contextmanager
def _running(command: list[str], folder: str, name: str) -> Iterator[subprocess.Popen[bytes]]:
    with (Path(folder) / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            kept = os.environ.get("BENCH_KEEP")
            if kept:
                shutil.copy(Path(folder) / f"{name}.log", kept)


def _wait_ready(port: int) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError("the service did not get ready")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
