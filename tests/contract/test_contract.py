"""Runs the contract on every engine that is at hand: ours, llama-server, and a vLLM that is named.

An engine that is missing is skipped with the words that say how to get it.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.contract.checks import ANSWER_S, CHECKS, Check
from tests.contract.engines import CAPABILITIES, Engine
from tests.replica.conftest import END_S, ROOT, end_replica, models_dir, start_replica

pytestmark = [pytest.mark.model, pytest.mark.processes]

PEERS = ROOT / ".venv-peers" / "bin" / "python"
VLLM_URL = "TERTULIA_CONTRACT_VLLM"


@pytest.fixture(scope="session")
def small_folder() -> Path:
    folder = models_dir() / "small"
    if not (folder / "model.json").is_file():
        pytest.skip(f"the small model is not installed in {folder}: tertulia models pull small")
    return folder


@pytest.fixture(scope="session")
def tertulia(small_folder: Path) -> Iterator[Engine]:
    replica = start_replica(small_folder, n_slots=4, batch_tokens=32)
    yield Engine("tertulia", replica.client, "smollm2-135m-instruct")
    end_replica(replica)


@pytest.fixture(scope="session")
def llama_server(small_folder: Path) -> Iterator[Engine]:
    python = Path(os.environ.get("TERTULIA_PEERS_PYTHON") or PEERS)
    if not python.exists():
        pytest.skip(
            "llama-server is not there: python3 -m venv .venv-peers && "
            ".venv-peers/bin/pip install xllamacpp==2026.10.11549"
        )
    script = str(Path(__file__).with_name("llama_server.py"))
    process = subprocess.Popen(
        [str(python), script, str(small_folder / "model.gguf")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        with reached(json.loads(process.stdout.readline())["url"]) as http:
            yield Engine("llama-server", http, _only_model(http))
    finally:
        process.kill()
        process.wait(END_S)
        process.stdout.close()


@pytest.fixture(scope="session")
def vllm() -> Iterator[Engine]:
    url = os.environ.get(VLLM_URL)
    if not url:
        pytest.skip(f"no vLLM is named in {VLLM_URL}: scripts/contract-vllm installs and runs one")
    with reached(url) as http:
        yield Engine("vllm", http, _only_model(http))


def reached(url: str) -> httpx2.Client:
    """One client for all checks: making one takes longer than most of them."""
    return httpx2.Client(base_url=url, timeout=ANSWER_S)


def _only_model(http: httpx2.Client) -> str:
    return str(http.get("/v1/models").json()["data"][0]["id"])


@pytest.mark.parametrize(("claim", "check"), CHECKS, ids=[check.__name__ for _, check in CHECKS])
@pytest.mark.parametrize("engine", list(CAPABILITIES))
def test_the_contract(
    request: pytest.FixtureRequest, engine: str, claim: str | None, check: Check
) -> None:
    if claim is not None and claim not in CAPABILITIES[engine]:
        pytest.skip(f"{engine} does not claim: {claim}")
    check(request.getfixturevalue(engine.replace("-", "_")))
