"""A real engine process with the small model, shared by the tests of this folder.

It must end with the tests, and use one thread only.
"""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import httpx2
import pytest

ROOT = Path(__file__).parents[2]
ARITHMETIC = os.environ.get("TERTULIA_MODELS__ARITHMETIC", "llama.cpp")
BLOCK_TOKENS = 32 if ARITHMETIC == "openvino" else 16
END_S = 20.0
POLL_S = 0.02


def models_dir() -> Path:
    """Where the models are installed on this machine."""
    return Path(os.environ.get("TERTULIA_MODELS_DIR") or ROOT / ".tertulia" / "models")


@pytest.fixture(scope="session")
def small_folder() -> Path:
    """The installed small model; its tests are skipped where there is none."""
    folder = models_dir() / "small"
    if not (folder / "model.json").is_file():
        pytest.skip(f"the small model is not installed in {folder}: tertulia models pull small")
    return folder


@dataclass
class Replica:
    """A running engine process and a client for it."""

    process: subprocess.Popen[str]
    port: int
    client: httpx2.Client

    def complete(self, prompt: str | list[int], **fields: Any) -> dict[str, Any]:
        # A salt of its own: a prompt read anew and one half reused differ in the last bits, and so
        # may what is likeliest after them.
        salt = uuid.uuid4().hex
        body = {"prompt": prompt, "temperature": 0, "max_tokens": 8, "cache_salt": salt}
        body |= {"return_token_ids": True}
        answer = self.client.post("/v1/completions", json=body | fields)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def metric(self, name: str, **labels: str) -> float:
        """The one value of a metric, summed over the labels that are not given."""
        lines = self.client.get("/metrics").text.splitlines()
        given = [f'{label}="{value}"' for label, value in labels.items()]
        values = [
            float(line.split()[-1])
            for line in lines
            if line.startswith(name + "{") and all(label in line for label in given)
        ]
        assert values, f"there is no metric {name}"
        return sum(values)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Looks until it holds; a test that waits for ever is a failed test."""
        pause = Event()
        for _ in range(int(END_S / POLL_S)):
            if condition():
                return
            pause.wait(POLL_S)
        raise AssertionError("it did not happen")

    @property
    def idle(self) -> bool:
        names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        return all(self.metric(f"vllm:{name}") == 0 for name in names)


def start_replica(folder: Path, **settings: Any) -> Replica:
    """Starts an engine process with one thread and reads the port from its first line.

    It computes with what `serve` would.
    """
    whole = {"folder": str(folder), "threads": 1, "parent_pid": os.getpid()}
    whole |= {"arithmetic": ARITHMETIC, **settings}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.replica.engine_process", json.dumps(whole)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        ready = json.loads(process.stdout.readline())
    except BaseException:  # the test's time-out as well
        process.kill()
        process.communicate()
        raise
    client = httpx2.Client(base_url=f"http://127.0.0.1:{ready['port']}", timeout=60)
    return Replica(process, ready["port"], client)


def end_replica(replica: Replica) -> None:
    """Ends the process and everything that belongs to it."""
    replica.client.close()
    replica.process.kill()
    replica.process.wait(END_S)
    assert replica.process.stdout is not None
    replica.process.stdout.close()


@pytest.fixture(scope="session")
def replica(small_folder: Path) -> Iterator[Replica]:
    """One engine for all tests: 4 slots, so that a queue forms quickly, and small steps."""
    started = start_replica(small_folder, n_slots=4, batch_tokens=32, n_queue=4)
    yield started
    end_replica(started)
