"""The page of a run, its rows, and the command that writes it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tertulia.cli import app
from tertulia.simulator import fast, line, machine, report
from tertulia.simulator.scenario import parse
from tertulia.simulator.story import tell
from tertulia.simulator.table import as_text, rows

SMALL = """
title = "A <small> story"
about = "Of little."
seconds = 30
[fleet]
accelerators = 3
[traffic]
per_s = 12
[[variants]]
name = "a"
expect = "little"
[[variants]]
name = "b"
policy = { ladder = "off", door = false }
faults = [{ kind = "caches_lost", at_s = 10 }]
"""
WITH_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None


def page() -> str:
    play = parse("small", SMALL)
    return report.page(play, list(tell(play)))


def test_a_page_has_inputs_rows_and_what_happened_and_is_the_same_again() -> None:
    found = page()
    assert "A &lt;small&gt; story" in found
    assert "<td>b</td>" in found
    assert "b: caches lost at 10 s" in found
    assert "accelerators&#34;: 3" in found
    assert found == page()


@pytest.mark.skipif(not WITH_MATPLOTLIB, reason="needs matplotlib")
def test_a_page_has_pictures() -> None:
    assert page().count("<svg") >= 3


def test_without_matplotlib_the_page_says_how_to_get_pictures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(report, "has_matplotlib", lambda: False)
    assert "pip install &#39;tertulia[simulate]&#39;" in page().replace("'", "&#39;")


def test_without_numba_the_command_says_what_to_install_for_the_fast_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "small.toml"
    file.write_text(
        SMALL.replace("seconds = 30", 'seconds = 30\nengine = "fast"').split("faults")[0]
    )
    monkeypatch.setattr(machine, "has_numba", lambda: False)
    monkeypatch.setattr(fast, "has_numba", lambda: False)
    assert "pip install 'tertulia[simulate]'" in run(str(file))[2]
    file.write_text(SMALL)
    assert "pip install" not in run(str(file))[2]


def test_columns_in_which_nothing_stands_are_left_out() -> None:
    found = rows(list(tell(parse("small", SMALL))))
    assert "over budget" not in found[0]
    assert {"variant", "who", "messages", "wait p95"} <= found[0].keys()
    assert "expected: little" in as_text(found)


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["simulate", *args])
    return result.exit_code, result.stdout, result.stderr


def test_the_command_lists_plays_and_writes(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    status, said, _ = run("--list")
    assert status == 0
    assert "overload              The day the accelerators run out" in said
    status, said, noted = run(str(file), "--report", str(tmp_path / "out"))
    assert status == 0
    assert "expected: little" in said
    assert "played: b" in noted
    assert (tmp_path / "out" / "report.html").read_text().startswith("<!doctype html>")


def test_the_command_gives_the_same_bytes_for_the_same_seed(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    first, again = run(str(file), "--json"), run(str(file), "--json")
    assert first == again
    assert run(str(file), "--json", "--seed", "2")[1] != first[1]
    values = json.loads(first[1])
    assert [one["variant"] for one in values] == ["a", "b"]
    changed = run(str(file), "--json", "--set", "fleet.accelerators=30", "--set", "title=other")
    assert json.loads(changed[1])[0]["groups"]["free"]["wait_p95_s"] == 0.0


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ([], "Which scenario?"),
        (["nope"], "There is no scenario nope"),
        (["overload", "--set", "seconds"], "write it as NAME=VALUE"),
        (["overload", "--set", "fleet.accelerators=none"], "fleet.accelerators"),
        (["overload", "--set", "secnds=3"], "secnds: Extra inputs are not permitted"),
    ],
)
def test_the_command_refuses_in_a_sentence(args: list[str], told: str) -> None:
    status, _, said = run(*args)
    assert status == 2
    assert told in said
    assert "Traceback" not in said


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "MOST_WAITING", 20)
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    status, _, said = run(str(file), "--set", 'policy.ladder="off"', "--set", "policy.door=false")
    assert status == 2
    assert "asks for the impossible: more than 20 messages wait" in said


def test_a_report_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    status, _, said = run(str(file), "--report", str(file))
    assert status == 1
    assert "The report can't be written" in said
