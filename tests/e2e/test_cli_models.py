"""`tertulia models`: what is there, what is not, and why an install failed; fetches nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tertulia.cli import app
from tertulia.replica.catalogue import CATALOGUE, CatalogueModel
from tertulia.replica.install import InstallFailed, Progress
from tertulia.terminal import models
from tests.e2e.processes import installed_models

INSTALLED = installed_models()


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
    ended = run(tmp_path, "install", "huge")
    assert ended.exit_code == 1
    assert "There is no model named 'huge'; the catalogue has: small, large" in ended.stderr


@pytest.mark.model
def test_installing_what_is_installed_does_nothing_and_succeeds() -> None:
    ended = run(INSTALLED, "install", "small")
    assert ended.exit_code == 0
    assert "is installed in" in ended.stderr


def test_a_failed_install_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "install", _fails)
    ended = run(tmp_path, "install", "small", "--source", "hub")
    assert ended.exit_code == 1
    assert "Not installed: hub: the disk is full" in ended.stderr


def _fails(
    _model: CatalogueModel, _folder: Path, _report: Callable[[Progress], None], source: str
) -> Path:
    raise InstallFailed(f"{source}: the disk is full")


def test_an_interrupted_install_is_told_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "install", interrupted)
    ended = run(tmp_path, "install", "small")
    assert ended.exit_code == 130
    assert "goes on from there" in ended.stderr


def test_progress_in_a_pipe_is_a_line_for_each_tenth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps(
        _model: CatalogueModel, folder: Path, report: Callable[[Progress], None], _source: str
    ) -> Path:
        for done in range(101):
            report(Progress("download", done, 100))
        report(Progress("verify", 0, 1))
        report(Progress("done", 1, 1))
        return folder

    monkeypatch.setattr(models, "install", steps)
    lines = run(tmp_path, "install", "small").stderr.splitlines()
    assert lines[1:-1] == [*(f"  fetching {n} %" for n in range(0, 101, 10)), "  verifying"]


def test_the_path_of_a_missing_model_is_an_error(tmp_path: Path) -> None:
    ended = run(tmp_path, "path", "small")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "tertulia models install small" in ended.stderr


def test_the_path_of_all_models_is_their_folder(tmp_path: Path) -> None:
    assert run(tmp_path, "path").stdout.strip() == str(tmp_path)
