"""`tertulia serve` as a process: what it refuses at its start, and that a refusal harms nobody."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

from tertulia.drills.loopback import loopback
from tertulia.listening import free_port
from tests.e2e.processes import START_S, Service, installed_models

pytestmark = pytest.mark.anyio

# The lanes alone: no engine is needed to say no.
NO_ENGINE = "[models]\nembedded = false\n"


def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A `serve` that is expected to end by itself."""
    command = [sys.executable, "-m", "tertulia", "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)


async def test_a_second_service_in_the_same_folder_is_refused_and_leaves_the_first_alone(
    tmp_path: Path,
) -> None:
    service = Service(tmp_path, NO_ENGINE)
    service.start()
    try:
        await answers(service)
        fleet = tmp_path / "run" / "fleet.json"
        before = fleet.read_bytes()
        config = str(tmp_path / "tertulia.toml")
        ended = await asyncio.to_thread(serve, "--config", config, "--port", str(free_port()))
        after = fleet.read_bytes()
    finally:
        service.end()
    assert (ended.returncode, "in use by the process" in ended.stdout) == (1, True)
    assert "Traceback" not in ended.stderr
    assert after == before


def test_a_folder_that_can_not_be_used_is_said_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    ended = serve("--data-dir", str(tmp_path / "file" / "data"), "--port", str(free_port()))
    assert (ended.returncode, len(ended.stdout.splitlines()), ended.stderr) == (1, 1, "")


async def test_a_service_that_others_can_reach_says_so(tmp_path: Path) -> None:
    """Once a person has opened it to the network, nothing else on the screen would tell."""
    service = Service(tmp_path, 'host = "0.0.0.0"\n' + NO_ENGINE)
    service.start()
    try:
        await answers(service)
    finally:
        service.end()
    assert "Listening on 0.0.0.0: whoever" in service.program.log.read_text()


def test_a_plan_without_room_for_a_question_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "tertulia.toml"
    config.write_text("[plans.plus]\nwindow_tokens = 500\nanswer_tokens = 500\n")
    ended = serve("--config", str(config))
    assert ended.returncode == 1
    assert "plans.plus: answer_tokens must be less than window_tokens" in ended.stderr


@pytest.mark.model
@pytest.mark.processes
async def test_an_end_is_not_held_up_by_a_download(tmp_path: Path) -> None:
    """The larger model comes from a hub that takes the question and never answers."""
    asked, left = asyncio.Event(), asyncio.Event()

    async def hub(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        while await reader.read(4096):
            pass  # until the asker is gone
        writer.close()
        await writer.wait_closed()
        left.set()

    models = tmp_path / "models"
    models.mkdir()
    (models / "small").symlink_to(installed_models() / "small")
    server = await asyncio.start_server(hub, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    service = Service(tmp_path / "data", '[models]\nlarge = "large"\nsource = "hub"\nthreads = 1\n')
    service.program.environment = {
        "TERTULIA_HUB_ADDRESS": f"http://127.0.0.1:{port}",
        "TERTULIA_MODELS_DIR": str(models),
    }
    service.start()
    async with server:
        await asyncio.wait_for(asked.wait(), START_S)
        process = service.program.process
        assert process is not None
        address = (tmp_path / "data" / "run" / "address").read_text()
        service.end()
        assert process.returncode == 0, "it had to be killed"
        await asyncio.wait_for(left.wait(), START_S)  # the installer is gone too
    assert address == service.url
    assert not (tmp_path / "data" / "run" / "address").exists(), "nobody is there any more"


@pytest.mark.model
@pytest.mark.processes
async def test_an_engine_that_cant_start_is_said_and_left_alone(tmp_path: Path) -> None:
    """The model has no graph, and mostly OpenVINO is not installed either."""
    small = tmp_path / "models" / "small"
    small.mkdir(parents=True)
    for name in ("model.gguf", "model.json", "tokenizer.json"):
        (small / name).symlink_to(installed_models() / "small" / name)
    settings = '[models]\narithmetic = "openvino"\nlarge = "off"\n'
    service = Service(tmp_path / "data", settings)
    service.program.environment = {"TERTULIA_MODELS_DIR": str(small.parent)}
    service.start()
    try:
        await answers(service)
        fleet = await fleet_when(tmp_path / "data" / "run" / "fleet.json", '"failed"')
        await answers(service)
    finally:
        service.end()
    said = service.program.log.read_text()
    assert '"replicas": []' in fleet
    assert "scripts/setup openvino" in said or "tertulia models convert small" in said
    assert "can't be started" in said
    assert said.count("child_ended") == 2


async def fleet_when(path: Path, word: str) -> str:
    """What the lanes are told, as soon as this stands in it."""
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if word in (told := path.read_text()):
            return told
        await asyncio.sleep(0.05)
    raise AssertionError(f"nobody said {word}")


async def answers(service: Service) -> None:
    """Returns when the lanes answer; models are not waited for."""
    until = time.monotonic() + START_S
    async with loopback(START_S) as http:
        while time.monotonic() < until:
            try:
                assert (await http.get(service.url + "/livez")).status_code == 200
                return
            except httpx2.HTTPError:
                await asyncio.sleep(0.05)
    raise AssertionError(service.program.log.read_text())
