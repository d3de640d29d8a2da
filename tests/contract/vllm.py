"""`python -m tests.contract.vllm FOLDER`: a real vLLM on this machine's CPU. First the contract of
replicas; then a fleet with two of them, one of which is killed, and then frozen, in the middle of a
reply. FOLDER is what `scripts/contract-vllm` made; nothing is left running.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx2

from tertulia.drills.fleet import ReplicaTable, a_fleet, a_folder
from tertulia.drills.listener import Seen
from tertulia.drills.losing_replicas import model_server
from tertulia.drills.processes import Role
from tertulia.drills.stage import Promise, Stage, new_stage, whole
from tertulia.listening import free_port
from tests.e2e.processes import ROOT, installed_models

MODEL: Final = "smollm2"
_START_S: Final = 420.0
_LOOK_S: Final = 0.5
_END_S: Final = 30.0
PLAN: Final = """
[plans.plus]
answer_tokens = 120
budgets = []
"""


def command(folder: Path) -> tuple[str, ...]:
    """What starts a vLLM; `{port}` is where it listens. docs/howto/fleet.md says why
    each option is there."""
    venv = folder / "venv"
    preload = [str(venv / "lib" / "libiomp5.so")]
    preload += [str(path) for path in Path("/usr/lib").glob("*/libtcmalloc_minimal.so.4")]
    environment = {
        "LD_PRELOAD": ":".join(preload),
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
        "OMP_NUM_THREADS": "1",
    }
    options = (
        *("--served-model-name", MODEL, "--host", "127.0.0.1", "--port", "{port}"),
        # fp32: this is 50 times faster than bf16 on a CPU without it.
        *("--dtype", "float32", "--block-size", "32", "--max-model-len", "4096"),
        *("--max-num-seqs", "8", "--max-num-batched-tokens", "512", "--enforce-eager"),
        *("--enable-prefix-caching", "--scheduling-policy", "priority"),
        *("--enable-prompt-tokens-details", "--enable-request-id-headers", "--enable-scale-out"),
    )
    set_ = (f"{name}={value}" for name, value in environment.items())
    return ("env", *set_, str(venv / "bin" / "vllm"), "serve", str(folder / MODEL), *options)


def main(given: Sequence[str]) -> int:
    """The command; 1 if the contract or a promise was broken."""
    folder = Path(given[0]).resolve()
    with _running(folder) as url:
        checked = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "tests/contract", "-k", "vllm-", *given[1:]],
            cwd=ROOT,
            env={**os.environ, "TERTULIA_CONTRACT_VLLM": url},
            check=False,
        )
    promises = asyncio.run(_failovers(folder))
    for promise in promises:
        print(f"{'kept  ' if promise.kept else 'BROKEN'}  {promise.text} ({promise.seen})")
    return int(checked.returncode != 0 or not all(promise.kept for promise in promises))


@contextmanager
def _running(folder: Path) -> Iterator[str]:
    """One vLLM, ready. Its engine is a child of its own: the whole session ends with us."""
    port = free_port()
    words = [word.replace("{port}", str(port)) for word in command(folder)]
    with (folder / "vllm.log").open("wb") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait_for(f"http://127.0.0.1:{port}/health", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, 15)
        try:
            server.wait(_END_S)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, 9)


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        assert server.poll() is None, "vLLM ended at its start; see its log"
        try:
            if httpx2.get(url, trust_env=False).status_code == 200:
                return
        except httpx2.HTTPError:
            pass
        time.sleep(_LOOK_S)
    raise TimeoutError(f"vLLM was not ready within {_START_S:.0f} s")


async def _failovers(folder: Path) -> list[Promise]:
    table = ReplicaTable(MODEL, installed_models() / "small", slots=8, command=command(folder))
    with a_folder("vllm") as made:
        async with a_fleet(made, [table] * 2, toml=PLAN, start_s=_START_S) as fleet:
            stage = await new_stage(fleet, lambda line: print(line, flush=True))
            await stage.ask(_short())  # both have read nothing yet: the first words take longest
            killed = await model_server(stage)
            for role in fleet.replicas:
                await stage.bring_back(role)
            return [*killed, *await _frozen(stage)]


def _short() -> Seen:
    return Seen("Good morning.")


async def _frozen(stage: Stage) -> list[Promise]:
    """SIGSTOP to the whole engine: it holds its connections and says nothing."""
    stopped: list[Role] = []

    async def freeze() -> None:
        role = await stage.busy(stage.fleet.replicas, "replica")
        role.freeze()
        stopped.append(role)
        stage.note(f"froze {role.name} (SIGSTOP)")

    try:
        seen = await stage.in_mid_reply(freeze)
    finally:
        for role in stopped:
            role.thaw()
    return await whole(stage, seen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
