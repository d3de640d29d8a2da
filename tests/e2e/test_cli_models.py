"""`tertulia models`: what is there, what is not, and why a pull failed; only one test fetches."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tertulia.cli import app
from tertulia.replica.catalogue import CATALOGUE, CatalogueModel
from tertulia.replica.placing import InstallFailed, Progress, sha256_of
from tertulia.terminal import models, pulling
from tests.e2e.processes import installed_models
from tests.replica.hub_server import Hub

INSTALLED = installed_models()
END_S = 60.0


def run(models_dir: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["models", *words], env={"TERTULIA_MODELS_DIR": str(models_dir)})


def test_the_list_shows_every_model_of_the_catalogue(tmp_path: Path) -> None:
    lines = run(tmp_path, "list").stdout.splitlines()[1:]
    assert [line.split()[0] for line in lines] == [model.name for model in CATALOGUE]
    assert all(line.endswith("no") for line in lines)


def test_a_half_made_model_is_listed_as_damaged(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    assert run(tmp_path, "list").stdout.splitlines()[1].endswith("damaged")


def test_an_unknown_name_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    ended = run(tmp_path, "pull", "huge")
    assert ended.exit_code == 1
    assert "there is no model named 'huge'; the catalogue has: small, large" in ended.stderr


@pytest.mark.model
def test_pulling_what_is_installed_does_nothing_and_succeeds() -> None:
    ended = run(INSTALLED, "pull", "small")
    assert ended.exit_code == 0
    assert "is installed in" in ended.stderr


def test_a_failed_pull_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "install", _fails)
    ended = run(tmp_path, "pull", "small", "--source", "hub")
    assert ended.exit_code == 1
    assert "Not installed: hub: the disk is full" in ended.stderr


def _fails(
    _model: CatalogueModel,
    _folder: Path,
    _report: Callable[[Progress], None],
    source: str,
    *,
    file: Path | None,
) -> Path:
    raise InstallFailed(f"{source}: the disk is full")


def test_an_interrupted_pull_is_told_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(pulling, "install", interrupted)
    ended = run(tmp_path, "pull", "small")
    assert ended.exit_code == 130
    assert "goes on from there" in ended.stderr


def test_progress_in_a_pipe_is_a_line_for_each_tenth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps(
        _model: CatalogueModel,
        folder: Path,
        report: Callable[[Progress], None],
        _source: str,
        *,
        file: Path | None,
    ) -> Path:
        for done in range(101):
            report(Progress("download", done * 1_000_000, 100_000_000))
        report(Progress("verify", 0, 1))
        report(Progress("done", 1, 1))
        return folder

    monkeypatch.setattr(pulling, "install", steps)
    lines = run(tmp_path, "pull", "small").stderr.splitlines()
    assert lines[1:-1] == [
        *(f"  fetching {n} % of 100 MB" for n in range(0, 101, 10)),
        "  verifying",
    ]


def test_the_path_of_a_missing_model_is_an_error(tmp_path: Path) -> None:
    ended = run(tmp_path, "path", "small")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "tertulia models pull small" in ended.stderr


def test_the_path_of_all_models_is_their_folder(tmp_path: Path) -> None:
    assert run(tmp_path, "path").stdout.strip() == str(tmp_path)


def test_the_list_is_for_programs_too(tmp_path: Path) -> None:
    rows = json.loads(run(tmp_path, "list", "--json").stdout)
    assert [row["name"] for row in rows] == [model.name for model in CATALOGUE]
    assert {row["state"] for row in rows} == {"no"}


def test_the_list_fits_eighty_columns_whatever_models_are_called(tmp_path: Path) -> None:
    _pretend(tmp_path, "x" * 32, title="A model with a title of many words " * 3, licence="l" * 90)
    lines = run(tmp_path, "list").stdout.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert any(line.startswith("x" * 32) and line.endswith("installed") for line in lines)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "which model?"),
        (("--file", "a.gguf"), "give its --name"),
        (("--file", "a.gguf", "--name", "mine"), "there is no file a.gguf"),
        (("--file", "a.gguf", "--name", "../mine"), "can't be a model's name"),
        (("small", "--name", "mine"), "--name is for a --file"),
        (("small", "--sha256", "abc"), "64 hexadecimal digits"),
        (("small", "--sha256", "0" * 64), "is the file with SHA-256 b179c952"),
        (("hf:o/r/f.gguf",), "needs its --sha256"),
        (("hf:o/r/f.bin", "--first-time"), "not of the form"),
        (("hf:o/r/f.gguf", "--file", "a.gguf"), "not both"),
        (("hf:o/r/f.gguf", "--first-time", "--name", "small"), "the catalogue's name"),
    ],
)
def test_words_that_do_not_go_together_are_refused(
    tmp_path: Path, words: tuple[str, ...], reason: str
) -> None:
    ended = run(tmp_path, "pull", *words)
    assert ended.exit_code == 1
    assert ended.stderr.startswith("Not installed: ")
    assert reason in ended.stderr


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    pickle = tmp_path / "weights.gguf"
    pickle.write_bytes(b"PK\x03\x04" + bytes(100))
    ended = run(tmp_path / "models", "pull", "--file", str(pickle), "--name", "mine")
    assert ended.exit_code == 1
    assert "weights.gguf is refused: it is a pickle" in ended.stderr


def test_the_types_are_listed_with_what_they_are_good_for(tmp_path: Path) -> None:
    ended = run(tmp_path, "quantize", "small")
    assert ended.exit_code == 0
    assert "Q8_0     8.5 bits a weight: answers that nobody tells" in ended.stderr


def test_what_is_not_there_can_not_be_converted(tmp_path: Path) -> None:
    ended = run(tmp_path, "quantize", "large", "Q4_0")
    assert ended.exit_code == 1
    assert "is not a complete model" in ended.stderr


@pytest.mark.model
def test_a_verified_model_is_well(tmp_path: Path) -> None:
    shutil.copytree(INSTALLED / "small", tmp_path / "small")
    ended = run(tmp_path, "verify")
    assert ended.exit_code == 0
    assert "ok    small/model.gguf" in ended.stdout


@pytest.mark.model
def test_a_damaged_model_is_told_with_what_helps(tmp_path: Path) -> None:
    shutil.copytree(INSTALLED / "small", tmp_path / "small")
    with (tmp_path / "small" / "model.gguf").open("r+b") as weights:
        weights.seek(-1, os.SEEK_END)
        weights.write(b"\xff")
    ended = run(tmp_path, "verify", "small", "--json")
    assert ended.exit_code == 1
    (wrong,) = [each for each in json.loads(ended.stdout)["findings"] if each["state"] == "fail"]
    assert wrong["name"] == "small/model.gguf"
    assert "tertulia models remove small`, then `tertulia models pull small" in wrong["advice"]


def test_verifying_what_is_not_there_says_how_to_have_it(tmp_path: Path) -> None:
    assert run(tmp_path, "verify").exit_code == 0
    ended = run(tmp_path, "verify", "large")
    assert ended.exit_code == 1
    assert "tertulia models pull large" in ended.stderr


@pytest.mark.model
def test_the_card_says_who_says_so() -> None:
    card = json.loads(run(INSTALLED, "show", "small", "--json").stdout)
    assert card["licence"].startswith("Apache-2.0: the model's page (HuggingFaceTB/")
    assert card["architecture"] == "llama, 30 layers, 576 wide, 9 heads"
    assert max(len(line) for line in run(INSTALLED, "show", "small").stdout.splitlines()) <= 80


def test_the_card_of_what_is_not_there_claims_no_more_than_is_known(tmp_path: Path) -> None:
    card = json.loads(run(tmp_path, "show", "larger", "--json").stdout)
    assert card["state"] == "no"
    assert card["licence"].endswith("alone: the GGUF file and the package say nothing")
    assert "parameters" not in card


@pytest.mark.parametrize("command", ["show", "verify", "remove", "path", "quantize"])
def test_an_unknown_model_is_an_error_of_every_command(tmp_path: Path, command: str) -> None:
    words = ("Q8_0",) if command == "quantize" else ()
    ended = run(tmp_path, command, "../..", *words)
    assert ended.exit_code == 1
    assert "here is no model named '../..'; there are: small, large, larger" in ended.stderr


def test_nothing_is_removed_where_nobody_can_be_asked(tmp_path: Path) -> None:
    _pretend(tmp_path, "mine")
    assert run(tmp_path, "remove", "mine").exit_code == 1
    assert (tmp_path / "mine").is_dir()
    assert run(tmp_path, "remove", "mine", "--yes").exit_code == 0
    assert not (tmp_path / "mine").exists()


def test_nothing_is_removed_without_a_yes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(tmp_path, "mine")
    monkeypatch.setattr("sys.stdin", _Terminal("n\n"))
    assert not models.is_confirmed("mine", tmp_path)
    monkeypatch.setattr("sys.stdin", _Terminal("y\n"))
    assert models.is_confirmed("mine", tmp_path)


class _Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def _pretend(models_dir: Path, name: str, **fields: str) -> None:
    """A model of one's own whose description says that it is whole."""
    folder = models_dir / name
    folder.mkdir(parents=True)
    (folder / "model.gguf").write_bytes(b"GGUF")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.json").write_text(json.dumps({"format": 1, "gguf_bytes": 4, **fields}))


@pytest.mark.model
@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_pull_that_was_killed_goes_on_at_that_byte(tmp_path: Path) -> None:
    given = INSTALLED / "small" / "model.gguf"
    going_on = threading.Event()
    hub = Hub(given.read_bytes(), n_breaks=1, stalls=going_on)
    words = ["pull", "hf:o/r/f.gguf", "--sha256", sha256_of(given), "--name", "mine"]
    command = [sys.executable, "-m", "tertulia", "models", *words]
    environment = {
        **os.environ,
        "TERTULIA_MODELS_DIR": str(tmp_path),
        "TERTULIA_HUB_ADDRESS": hub.address,
    }
    try:
        first = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        assert first.stderr is not None
        for line in first.stderr:
            if "fetching 40 %" in line:
                break
        first.kill()
        first.communicate()
        assert json.loads(run(tmp_path, "list", "--json").stdout)[-1]["name"] == "larger"
        (partial,) = (tmp_path / ".incoming-mine").glob("*.gguf")
        have = partial.stat().st_size
        assert 0 < have < len(hub.data)
        subprocess.run(command, env=environment, check=True, timeout=END_S)
        assert hub.asked[-1] == ("/o/r/resolve/main/f.gguf", f"bytes={have}-")
        assert run(tmp_path, "verify", "mine").exit_code == 0
    finally:
        going_on.set()
        hub.close()
