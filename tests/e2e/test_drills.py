"""`tertulia drill`: what it says without a fleet, and two drills whole; people run the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tertulia.cli import app
from tertulia.config import Settings, load_settings
from tertulia.drills import losing_roles, programme
from tertulia.drills.listener import Seen
from tertulia.drills.stage import silent_at_most
from tests.e2e.processes import installed_models

pytestmark = pytest.mark.anyio

PATIENT_S = 20.0
# What a fleet must survive, and what it does on purpose.
PROMISED = ("model-server", "caches", "gateway", "store", "counters", "region", "runaway", "deploy")


def settings() -> Settings:
    return load_settings(None, models_dir=installed_models())


def test_the_drills_are_listed_with_a_sentence_each() -> None:
    ended = CliRunner().invoke(app, ["drill", "--list"])
    assert ended.exit_code == 0
    listed = dict(line.split(maxsplit=1) for line in ended.stdout.splitlines())
    assert set(PROMISED) <= set(listed)
    assert all(sentence.endswith(".") for sentence in listed.values())


@pytest.mark.parametrize("arguments", [["drill"], ["drill", "earthquake"]])
def test_a_drill_that_is_none_is_refused_with_those_that_are(arguments: list[str]) -> None:
    ended = CliRunner().invoke(app, arguments)
    assert ended.exit_code == programme.CANT_RUN
    assert "model-server" in ended.stderr


async def test_without_the_small_model_it_says_what_to_pull(tmp_path: Path) -> None:
    said: list[str] = []
    status = await programme.run("gateway", load_settings(None, models_dir=tmp_path), said.append)
    assert status == programme.CANT_RUN
    assert "tertulia models pull small" in "\n".join(said)


def test_a_silence_is_measured_against_what_a_sentence_takes() -> None:
    quick, slow = Seen("?", gaps_s=[0.1, 0.2, 2.0]), Seen("?", gaps_s=[4.0, 4.5])
    assert silent_at_most(2.0, quick, slow).kept
    assert not silent_at_most(1.5, quick, slow).kept
    assert not silent_at_most(2.0, slow, usual_s=1.0).kept


@pytest.mark.processes
@pytest.mark.model
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["gateway", "runaway"])
async def test_a_drill_keeps_what_is_promised(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # How long silences are says nothing here, beside other tests: people run the drills.
    monkeypatch.setattr(losing_roles, "_GATEWAY_S", PATIENT_S)
    said: list[str] = []
    status = await programme.run(name, settings(), said.append)
    told = "\n".join(said)
    assert status == programme.PASSED, told
    assert told.endswith("PASS")
    assert "of-a-drill" not in told, "a key is shown to nobody"
