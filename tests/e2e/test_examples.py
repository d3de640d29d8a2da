"""The examples and the commands of the how-to pages, run against the real service."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tertulia.backends.vocabulary import load_vocabulary
from tertulia.core.types import PromptMessage
from tests.e2e.processes import ROOT, Service, installed_models

RUN_S = 50


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    settings = '[models]\nlarge = "off"\nthreads = 1\n[plans.plus]\nanswer_tokens = 80\n'
    made = Service(tmp_path_factory.mktemp("service"), settings)
    made.start()
    try:
        asyncio.run(made.ready())
        yield made
    finally:
        made.program.end()


def run(service: Service, *command: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    given = {"TERTULIA_URL": service.url, "TERTULIA_API_KEY": service.key}
    return subprocess.run(
        command,
        input=typed,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **given},
        timeout=RUN_S,
        check=True,
    )


@pytest.mark.model
@pytest.mark.processes
def test_the_sdk_example_streams_an_answer_and_its_cost(service: Service) -> None:
    ended = run(service, sys.executable, "examples/ask.py", "Say", "hello.")
    assert ended.stdout.strip()
    assert re.fullmatch(r"\n\(\d+ tokens\)\n", ended.stderr)


@pytest.mark.model
@pytest.mark.processes
def test_the_resume_example_gets_every_event_once(service: Service) -> None:
    ended = run(service, "examples/resume.sh", "Tell me about the sea in five sentences.")
    numbers = [int(number) for number in re.findall(r"^id: (\d+)$", ended.stdout, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert ended.stdout.rstrip().splitlines()[-1].startswith('data: {"finish":')


@pytest.mark.model
@pytest.mark.processes
def test_the_terminal_chat_answers_with_this_machines_own_key(service: Service) -> None:
    config = str(service.folder / "tertulia.toml")
    words = (sys.executable, "-m", "tertulia", "chat", "--once", "-", "--config", config)
    service_key, service.key = service.key, ""
    try:
        ended = run(service, *words, typed="Say hello.")
    finally:
        service.key = service_key
    assert ended.stdout.strip()


@pytest.mark.model
@pytest.mark.processes
def test_a_backup_made_while_serving_is_whole(service: Service, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "howto" / "back-up-and-restore.md").read_text()
    script = re.search(r"python3 -c '(.+?)'", page, re.DOTALL)
    assert script is not None
    backup = tmp_path / "tertulia.sqlite3"
    run(service, sys.executable, "-c", script[1], str(service.database), str(backup))
    doctor = (sys.executable, "-m", "tertulia", "doctor", "--json")
    settings = tmp_path / "tertulia.toml"
    settings.write_text(f'data_dir = "{tmp_path}"\nmodels_dir = "{installed_models()}"\n')
    ended = run(service, *doctor, "--config", str(settings))
    findings = {each["name"]: each for each in json.loads(ended.stdout)["findings"]}
    assert findings["database"]["state"] == "ok"


@pytest.mark.model
def test_a_described_model_renders_as_the_installed_one(tmp_path: Path) -> None:
    installed = installed_models() / "small"
    described = json.loads((installed / "model.json").read_text())
    published = tmp_path / "published"
    published.mkdir()
    tokenizer = json.loads((installed / "tokenizer.json").read_text())
    tokenizer["added_tokens"] = [
        {
            "id": number,
            "content": text,
            "special": True,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
        for text, number in described["control_ids"].items()
    ]
    (published / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {
        "bos_token": {"content": described["bos_text"]},
        "eos_token": described["eos_text"],
        "chat_template": described["chat_template"],
    }
    (published / "tokenizer_config.json").write_text(json.dumps(settings))
    example = ROOT / "examples" / "describe_model.py"
    words = (sys.executable, str(example), str(published), str(tmp_path / "made"), "8192")
    subprocess.run(words, check=True, capture_output=True, timeout=RUN_S)
    question = [PromptMessage("system", "Be brief."), PromptMessage("user", "Why?")]
    made, original = load_vocabulary(tmp_path / "made"), load_vocabulary(installed)
    assert list(made.render(question)) == list(original.render(question))
    assert made.control_ids == original.control_ids
