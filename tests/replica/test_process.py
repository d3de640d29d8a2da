"""The engine as a process: it ends with its parent and when its step thread dies, and says why."""

import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest
from typer.testing import CliRunner

from tertulia.cli import app
from tertulia.config import MOST_SLOTS, ModelsTable
from tertulia.replica.llama import BELOW_TILES
from tertulia.replica.main import N_ANCHORS, ReplicaSettings, run
from tertulia.replica.server import Served, replica_app
from tests.replica.conftest import END_S, ROOT, end_replica, start_replica

pytestmark = pytest.mark.processes

SMALL_ENGINE = {"threads": 1, "batch_tokens": 32, "n_cache": 512}


@contextmanager
def python(code: str, settings: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """A process that runs this code; it is gone after the block, however that ends."""
    command = [sys.executable, "-c", textwrap.dedent(code), json.dumps(settings)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.model
def test_the_engine_ends_with_its_parent(small_folder: Path) -> None:
    with python(
        """
        import json, os, subprocess, sys, time
        settings = json.dumps(json.loads(sys.argv[1]) | {"parent_pid": os.getpid()})
        engine = [sys.executable, "-m", "tests.replica.engine_process", settings]
        child = subprocess.Popen(engine, stdout=subprocess.PIPE, text=True)
        child.stdout.readline()
        print(child.pid, flush=True)
        time.sleep(60)
        """,
        {"folder": str(small_folder), **SMALL_ENGINE},
    ) as parent:
        watched = os.pidfd_open(int(first_line(parent)))
    # A process descriptor becomes readable when its process has ended.
    assert select.select([watched], [], [], END_S)[0], "the engine outlived its parent"
    os.close(watched)


@pytest.mark.model
def test_a_dead_step_thread_ends_the_process_and_its_streams_say_so(small_folder: Path) -> None:
    with python(
        """
        import sys
        from tertulia.replica.llama import LlamaModel
        from tests.replica.engine_process import main
        def broken(*_arguments): raise MemoryError("planted")
        LlamaModel.choose = broken
        sys.exit(main(sys.argv[1]))
        """,
        {"folder": str(small_folder), **SMALL_ENGINE},
    ) as process:
        port = json.loads(first_line(process))["port"]
        answer = httpx2.post(
            f"http://127.0.0.1:{port}/v1/completions",
            json={"prompt": [504], "stream": True},
            timeout=END_S,
        )
        assert '"error"' in answer.text
        assert "[DONE]" not in answer.text
        assert process.wait(END_S) == 1


@pytest.mark.model
def test_a_step_that_does_not_end_ends_the_process(small_folder: Path) -> None:
    with python(
        """
        import sys, threading
        from tertulia.replica import engine, lifeline
        from tertulia.replica.llama import LlamaModel
        from tests.replica.engine_process import main
        engine.STUCK_S, lifeline.LOOK_S = 0.2, 0.2
        LlamaModel.choose = lambda *_arguments: threading.Event().wait()
        sys.exit(main(sys.argv[1]))
        """,
        {"folder": str(small_folder), **SMALL_ENGINE},
    ) as process:
        address = f"http://127.0.0.1:{json.loads(first_line(process))['port']}"
        assert httpx2.get(f"{address}/health", timeout=END_S).status_code == 200
        with pytest.raises(httpx2.TransportError):
            httpx2.post(f"{address}/v1/completions", json={"prompt": [504]}, timeout=END_S)
        assert process.wait(END_S) == 1


@pytest.mark.anyio
@pytest.mark.parametrize(("alive", "status"), [(True, 200), (False, 503)])
async def test_health_is_that_of_the_step_thread(alive: bool, status: int) -> None:
    served = cast("Served", SimpleNamespace(engine=SimpleNamespace(alive=alive)))
    transport = httpx2.ASGITransport(replica_app(served, "a key"))
    async with httpx2.AsyncClient(transport=transport, base_url="http://replica") as client:
        assert [(await client.get(path)).status_code for path in ("/health", "/ping")] == [
            status
        ] * 2


@pytest.mark.model
def test_asked_to_end_it_ends(small_folder: Path) -> None:
    replica = start_replica(small_folder, **SMALL_ENGINE)
    replica.process.send_signal(signal.SIGTERM)
    assert replica.process.wait(END_S) in (0, -signal.SIGTERM)
    end_replica(replica)


def test_a_folder_without_a_model_is_a_clear_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert run(ReplicaSettings(tmp_path)) == 2
    assert f"no model is installed in {tmp_path}" in caplog.text


def test_a_template_of_no_use_is_a_clear_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    described = {
        "served_id": "m",
        "licence": "",
        "window_tokens": 8,
        "end_ids": [],
        "control_ids": {},
        "chat_template": "{{ messages[0].content | upper }}",
        "bos_text": "",
        "eos_text": "",
        "adds_bos": False,
        "tokenizer_sha256": "",
        "sampling": {},
    }
    (tmp_path / "model.json").write_text(json.dumps(described))
    assert run(ReplicaSettings(tmp_path)) == 2
    assert "does not show each system text as it is" in caplog.text


@pytest.mark.parametrize("slots", [-1, 0, MOST_SLOTS + 1])
def test_slots_that_no_step_has_room_for_are_a_clear_end(slots: int) -> None:
    ended = CliRunner().invoke(app, ["replica", "small", "--slots", str(slots)])
    assert ended.exit_code == 2
    assert "'--slots'" in ended.output  # and not for want of a model
    with pytest.raises(ValueError, match="slots"):
        ModelsTable(slots=slots)


def test_as_many_slots_as_may_be_fit_a_step_and_the_librarys_sequences() -> None:
    assert MOST_SLOTS <= BELOW_TILES
    assert 2 * MOST_SLOTS + N_ANCHORS + 1 <= 256  # llama.cpp's LLAMA_MAX_SEQ


@pytest.mark.model
def test_a_damaged_model_is_a_clear_end(
    small_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("model.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((small_folder / name).read_bytes())
    (tmp_path / "model.gguf").write_bytes(b"\xff" * 1000)
    assert run(ReplicaSettings(tmp_path)) == 2
    assert f"{tmp_path} can't be loaded" in caplog.text
