"""`tertulia serve` as a process: what it refuses at its start, and that a refusal harms nobody."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import pytest

from tests.e2e.processes import START_S, Service, free_port

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


async def answers(service: Service) -> None:
    """Returns when the lanes answer; models are not waited for."""
    until = time.monotonic() + START_S
    async with httpx2.AsyncClient(trust_env=False, timeout=START_S) as http:
        while time.monotonic() < until:
            try:
                assert (await http.get(service.url + "/livez")).status_code == 200
                return
            except httpx2.HTTPError:
                await asyncio.sleep(0.05)
    raise AssertionError(service.program.log.read_text())
