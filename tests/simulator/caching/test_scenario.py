"""Scenarios of caches: those that come along can be used, and nonsense gets a sentence."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tertulia.cli import app
from tertulia.simulator.caching.rows import Rows
from tertulia.simulator.caching.runs import Search, run
from tertulia.simulator.caching.tables import CachesTable
from tertulia.simulator.scenario import CantUse, load, parse, shipped
from tertulia.simulator.story import told
from tertulia.simulator.table import as_text, as_values, rows

TINY = """
title = "tiny"
[caches]
kind = "routing"
seeds = 1
policies = ["ours", "random"]
[caches.fleet]
replicas = 2
cache_tokens = [100_000]
[caches.people]
open = [40]
[caches.span]
warm_s = 30
measured_s = 30
"""
WITH_MATPLOTLIB = importlib.util.find_spec("matplotlib") is not None


def table(text: str = TINY, **changes: Any) -> CachesTable:
    found = parse("tiny", text, {"caches": changes}).variants[0].scenario.caches
    assert found is not None
    return found


def played(asked: CachesTable, tried: list[str] | None = None) -> Rows:
    return run(asked, seed=1, heard=(tried if tried is not None else []).append)


def test_all_that_come_along_can_be_used() -> None:
    plays = [load(name).variants[0].scenario.caches for name, _ in shipped()]
    kinds = {one.kind for one in plays if one is not None}
    assert kinds == {"routing", "capacity", "trace", "hits", "steps"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ('kind = "routing"|kind = "flying"', "caches.kind: Input should be 'routing'"),
        ("seeds = 1|seeds = 0", "caches.seeds: Input should be greater than or equal to 1"),
        ('"random"|"by mood"', "there is no policy by mood: there are ours, bounded"),
        ("open = [40]|open = [0]", "people.open.0: Input should be greater than or equal to 1"),
        ("replicas = 2|replicas = 0", "fleet.replicas: Input should be greater than"),
        ("replicas = 2|replicas = 2\nslow_replicas = 3", "more replicas are slow than there are"),
        ("replicas = 2|replicas = 2\nwings = 2", "fleet.wings: Extra inputs are not permitted"),
        ("[100_000]|[10_000]", "cache_tokens must have room for two full windows"),
        ("open = [40]|open = [40]\nwindow_tokens = 9000", "room for the longest message"),
        ("measured_s = 30|measured_s = 0", "span.measured_s: Input should be greater than 0"),
        ("open = [40]|open = [1_000_000]\nthink_s = 1", "turns are more than is played at once"),
        ("[caches.people]|[steps]\n[caches.people]", "steps and caches are two scenarios"),
        ("[caches.people]|[caches.people", "tiny is no TOML"),
    ],
)
def test_what_cant_be_meant_gets_a_sentence(change: str, sentence: str) -> None:
    before, after = change.split("|")
    assert before in TINY
    with pytest.raises(CantUse) as refused:
        parse("tiny", TINY.replace(before, after, 1))
    assert sentence in str(refused.value)


def test_a_trace_that_cant_be_read_is_told(tmp_path: Path) -> None:
    file = tmp_path / "none.jsonl"
    of_trace = table(kind="trace", trace=str(file))
    with pytest.raises(CantUse, match="can't be read"):
        played(of_trace)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(CantUse, match="is no text"):
        played(of_trace)
    file.write_text("")
    with pytest.raises(CantUse, match="has no request"):
        played(of_trace)
    file.write_text("{}\n")
    with pytest.raises(CantUse, match="line 1 is no request"):
        played(of_trace)


def test_a_cache_without_room_for_the_longest_request_is_refused() -> None:
    with pytest.raises(CantUse, match="the longest request"):
        played(table(kind="trace"))


def test_a_table_has_a_row_for_each_policy_and_the_same_each_time() -> None:
    found = played(table())
    assert found.column("policy") == ["ours", "random"]
    assert found == played(table())


def test_each_seed_from_the_scenarios_own_on_is_played() -> None:
    """The mean of two is what both say alone."""

    def turns_per_s(seed: int, seeds: int) -> Any:
        return run(table(seeds=seeds), seed=seed, heard=lambda _: None).column("turns_per_s")[0]

    both = (turns_per_s(7, 1) + turns_per_s(8, 1)) / 2
    assert turns_per_s(7, 2) == pytest.approx(both, abs=0.02)
    assert turns_per_s(7, 1) != turns_per_s(8, 1)


def test_a_capacity_is_where_enough_are_still_inside_the_targets() -> None:
    asked = table(kind="capacity", policies=["random"], fleet={"replicas": 1})
    tried: list[str] = []
    found = played(asked, tried)
    (n_open,) = found.column("open")
    assert f"random, 100,000 tokens, {n_open:,} open" in " ".join(tried)
    (share,) = found.column("good_share")
    assert isinstance(share, float)
    assert share >= 0.99


@pytest.mark.parametrize("guess", [1, 7, 40, 300])
@pytest.mark.parametrize("most", [1, 12, 137])
def test_the_search_ends_at_the_most_that_fits_from_any_guess(guess: int, most: int) -> None:
    search = Search(guess)
    for _ in range(40):
        if search.is_over:
            break
        if search.at <= most:
            search.fits()
        else:
            search.is_too_much()
    assert search.below == most


def test_where_nothing_fits_the_search_ends_as_well() -> None:
    search = Search(40)
    for _ in range(40):
        if search.is_over:
            break
        search.is_too_much()
    assert (search.is_over, search.below) == (True, 0)


def test_a_table_can_be_read_by_people_and_programs() -> None:
    found = Rows(("name", "n_all", "share"), (("one", 1_000, 0.5), ("other", 2, 12.25)))
    assert as_text(found.texts()) == (
        "name   n all  share\none    1,000  0.500\nother  2      12.2"
    )
    assert found.values()[0] == {"name": "one", "n_all": 1_000, "share": 0.5}


def test_variants_are_told_apart_and_one_alone_has_no_name() -> None:
    one = parse("tiny", TINY).variants[0]
    assert "variant" not in rows([told(one)])[0]
    two = TINY + '[[variants]]\nname = "a"\n[[variants]]\nname = "b"\nseed = 2\n'
    both = [told(variant) for variant in parse("tiny", two).variants]
    assert [row["variant"] for row in rows(both)] == ["a", "a", "b", "b"]
    assert as_values(both[1])["seed"] == 2


def command(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["simulate", *args])
    return result.exit_code, result.stdout, result.stderr


def test_the_command_plays_tells_of_each_case_and_writes(tmp_path: Path) -> None:
    file = tmp_path / "tiny.toml"
    file.write_text(TINY)
    status, said, noted = command(str(file), "--report", str(tmp_path))
    assert status == 0
    assert said.startswith("tiny\n\npolicy  cache tokens  open")
    assert "random, 100,000 tokens, 40 open" in noted
    page = (tmp_path / "report.html").read_text()
    assert "<td>random</td>" in page
    assert ("<svg" in page) is WITH_MATPLOTLIB
    status, said, _ = command(str(file), "--json", "--set", 'caches.policies=["ours"]')
    assert status == 0
    (variant,) = json.loads(said)
    assert [row["policy"] for row in variant["rows"]] == ["ours"]


def test_the_command_refuses_in_a_sentence(tmp_path: Path) -> None:
    none = tmp_path / "none.jsonl"
    status, _, said = command("routing-mooncake", "--set", f'caches.trace="{none}"')
    assert (status, "Traceback" in said) == (2, False)
    assert "can't be read" in said
