"""`tertulia plan` in a terminal: the answer, how it follows, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tertulia.cli import app


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["plan", *words])


def test_the_answer_comes_first_and_then_how_it_follows() -> None:
    ended = run("--users", "1e6")
    lines = ended.stdout.splitlines()
    assert ended.exit_code == 0
    assert lines[0].startswith("60 replicas on 240 accelerators, by measured steps: $")
    assert lines[1].startswith("  large: bandwidth binds: ")
    assert any(line.startswith("By the data sheet alone it would be ") for line in lines)
    row = next(line.split() for line in lines if line.startswith("  peak_turns_per_s "))
    assert row[:4] == ["peak_turns_per_s", "347", "turns/s", "average_turns_per_s"]


def test_where_the_other_timing_has_no_plan_it_says_so() -> None:
    ended = run("--set", "gap_target_s=0.022")
    assert ended.exit_code == 0, ended.stderr
    assert "By the data sheet alone no replica would keep the targets.\n" in ended.stdout
    assert run("--set", "gap_target_s=0.022", "--explain", "large.step_s").exit_code == 0
    assert run("--set", "gap_target_s=0.022", "--json").exit_code == 0
    assert run("--set", "gap_target_s=0.022", "--sensitivity").exit_code == 0


def test_a_published_design_is_shown_line_by_line() -> None:
    ended = run("--preset", "seed-002")
    rows = {line.split()[0]: line.split()[1:3] for line in ended.stdout.splitlines() if line}
    assert rows["kv_tokens"] == ["458,000", "457,764"]
    assert rows["replicas"] == ["12", "12"]
    assert rows["gpu_cost_day"] == ["2,880", "2,880"]
    assert "both as it had rounded them; 88.9 without" in ended.stdout


def test_a_figure_is_explained_with_its_formula_and_each_input() -> None:
    ended = run("--preset", "seed-003", "--explain", "large.step_s")
    assert ended.stdout.startswith("large.step_s = 12.74 ms\n")
    assert "formula: a_s + step_bytes / (accelerators_per_replica" in ended.stdout
    assert "given by preset seed-003" in ended.stdout
    assert "by measured steps: 22.39 ms" in ended.stdout


def test_a_documents_own_name_is_explained_as_well() -> None:
    ended = run("--preset", "seed-003", "--explain", "ex1_nodes")
    assert "It is replicas × 1." in ended.stdout
    assert "replicas = 57 replicas" in ended.stdout


def test_inputs_come_from_a_file_and_flags_win(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text('users = 50_000\nsmall_share = 0.5\n[large]\naccelerator = "h200"\n')
    ended = run("--file", str(file), "--users", "70000", "--json", "--set", "small.slots=64")
    figures = json.loads(ended.stdout)["figures"]
    assert (figures["users"]["value"], figures["users"]["by"]) == (70_000, "flag")
    assert (figures["small_share"]["value"], figures["small_share"]["by"]) == (0.5, str(file))
    assert figures["large.memory_bytes"]["by"] == "h200"
    assert figures["small.slots"] == {
        "value": 64,
        "unit": "sequences",
        "by": "--set",
        "formula": None,
        "uses": [],
        "beside": 64,
    }


def test_the_file_in_the_how_to_can_be_planned(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "howto" / "plan-a-fleet.md"
    file = tmp_path / "plan.toml"
    file.write_text(page.read_text().partition("```toml\n")[2].partition("```")[0])
    ended = run("--file", str(file))
    assert ended.exit_code == 0, ended.stderr
    assert "The small pool (60% of turns)" in ended.stdout


def test_what_matters_most_is_shown_first() -> None:
    lines = run("--users", "1e6", "--sensitivity").stdout.splitlines()
    assert lines[0] == "accelerators: 240. If an input were 0.8 or 1.25 times it:"
    assert lines[1].split() == ["users", "1e+06", "192", "300"]


def test_widths_are_compared() -> None:
    lines = run("--users", "1e6", "--precision", "fp8", "--widths").stdout.splitlines()
    assert lines[0].startswith("each  replicas  accelerators")
    assert [line.split()[0] for line in lines[1:]] == ["1", "2", "4", "8"]
    assert lines[-1].endswith("overhead") or lines[-1].endswith("bandwidth")
    assert lines[2].endswith(", estimated")
    refused = run("--preset", "seed-003", "--widths")
    assert refused.exit_code == 2
    assert "A preset has its own hardware" in refused.stderr


def test_names_and_the_catalogue_are_listed() -> None:
    names, catalogue = run("--names").stdout, run("--catalogue").stdout
    assert "  users " in names
    assert "  large.step_s " in names
    assert "NVIDIA H200 SXM: https://" in catalogue
    assert "qwen3-8b" in catalogue


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--users", "0"), "`users` is 0, but has to be between 1 and"),
        (("--hit-share", "2"), "`hit_share` is 2"),
        (("--accelerator", "h900"), "`large.accelerator` is 'h900', but there are"),
        (("--preset", "seed-001"), "There is no preset 'seed-001'"),
        (("--set", "users"), "--set takes NAME=VALUE"),
        (("--set", "large.price_per_hour=-1"), "`large.price_per_hour` is -1"),
        (("--set", "large.pricee=1"), "did you mean `large."),
        (("--set", "users=lots"), "`users` is 'lots', which is no number."),
        (("--explain", "nobody"), "There is no figure `nobody`"),
        (("--file", "nowhere.toml"), "nowhere.toml can't be read: No such file"),
    ],
)
def test_nonsense_gets_one_sentence(words: tuple[str, ...], said: str) -> None:
    ended = run(*words)
    assert ended.exit_code == 2
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert ended.stdout == ""


def test_a_file_that_is_no_toml_is_said_to_be_none(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text("users = = 3")
    ended = run("--file", str(file))
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert "is no TOML" in ended.stderr
