"""Scenarios: those that come along can be used, and nonsense gets a sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tertulia.simulator.caching import CantUse, load, run, shipped
from tertulia.simulator.caching.__main__ import main
from tertulia.simulator.caching.rows import Rows
from tertulia.simulator.caching.runs import Search
from tertulia.simulator.caching.scenario import parse

TINY = """
title = "tiny"
kind = "routing"
seeds = [1]
policies = ["ours", "random"]
[fleet]
replicas = 2
cache_tokens = [100_000]
[people]
open = [40]
[span]
warm_s = 30
measured_s = 30
"""


def test_all_that_come_along_can_be_used() -> None:
    assert {load(name).kind for name, _ in shipped()} == {
        "routing",
        "capacity",
        "trace",
        "hits",
        "steps",
    }


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ('kind = "routing"|kind = "flying"', "kind: Input should be 'routing'"),
        ("seeds = [1]|seeds = []", "seeds: Tuple should have at least 1 item"),
        ('"random"|"by mood"', "there is no policy by mood: there are ours, bounded"),
        ("open = [40]|open = [0]", "people.open.0: Input should be greater than or equal to 1"),
        ("replicas = 2|replicas = 0", "fleet.replicas: Input should be greater than"),
        ("replicas = 2|replicas = 2\nslow_replicas = 3", "more replicas are slow than there are"),
        ("replicas = 2|replicas = 2\nwings = 2", "fleet.wings: Extra inputs are not permitted"),
        ("[100_000]|[10_000]", "cache_tokens must have room for two full windows"),
        ("open = [40]|open = [40]\nwindow_tokens = 9000", "room for the longest message"),
        ("measured_s = 30|measured_s = 0", "span.measured_s: Input should be greater than 0"),
        ("open = [40]|open = [1_000_000]\nthink_s = 1", "turns are more than is played at once"),
        ("[people]|[people", "tiny is no TOML"),
    ],
)
def test_what_cant_be_meant_gets_a_sentence(change: str, sentence: str) -> None:
    before, after = change.split("|")
    assert before in TINY
    with pytest.raises(CantUse) as refused:
        parse("tiny", TINY.replace(before, after, 1))
    assert sentence in str(refused.value)


def test_a_scenario_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(CantUse, match=r"no scenario nowhere\. There are capacity, hit-table"):
        load("nowhere")
    with pytest.raises(CantUse, match="can't be read"):
        load(str(tmp_path / "no.toml"))
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(CantUse, match="is no text"):
        load(str(tmp_path / "bad.toml"))


def test_a_trace_that_cant_be_read_is_told(tmp_path: Path) -> None:
    trace = {"kind": "trace", "trace": str(tmp_path / "none.jsonl")}
    with pytest.raises(CantUse, match="can't be read"):
        run(parse("tiny", TINY, trace))
    (tmp_path / "none.jsonl").write_text("")
    with pytest.raises(CantUse, match="has no request"):
        run(parse("tiny", TINY, trace))
    (tmp_path / "none.jsonl").write_text("{}\n")
    with pytest.raises(CantUse, match="line 1 is no request"):
        run(parse("tiny", TINY, trace))


def test_a_cache_without_room_for_the_longest_request_is_refused() -> None:
    with pytest.raises(CantUse, match="the longest request"):
        run(parse("tiny", TINY, {"kind": "trace"}))


def test_a_table_has_a_row_for_each_policy_and_the_same_bytes_each_time() -> None:
    rows = run(parse("tiny", TINY))
    assert rows.column("policy") == ["ours", "random"]
    assert rows.json() == run(parse("tiny", TINY)).json()


def test_a_capacity_is_where_enough_are_still_inside_the_targets() -> None:
    found = parse("tiny", TINY.replace("routing", "capacity").replace("replicas = 2", "replicas=1"))
    tried: list[str] = []
    rows = run(found.model_copy(update={"policies": ("random",)}), told=tried.append)
    (n_open,) = rows.column("open")
    assert f"random, 100,000 tokens, {n_open:,} open" in " ".join(tried)
    (share,) = rows.column("good_share")
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
    rows = Rows("a title", ("name", "n", "share"), (("one", 1_000, 0.5), ("other", 2, 12.25)))
    assert rows.text() == "a title\nname   n      share\none    1,000  0.500\nother  2      12.2\n"
    assert json.loads(rows.json())["rows"][0] == {"name": "one", "n": 1_000, "share": 0.5}
    assert rows.csv() == "name,n,share\none,1000,0.5\nother,2,12.25\n"


def test_the_command_lists_plays_and_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([]) == 0
    assert "hit-table" in capsys.readouterr().out
    (tmp_path / "tiny.toml").write_text(TINY)
    assert main([str(tmp_path / "tiny.toml"), "--policies", "ours", "--as", "csv"]) == 0
    assert capsys.readouterr().out.startswith("policy,cache_tokens,open,hit_share")
    assert main(["nowhere"]) == 2
    assert "There is no scenario" in capsys.readouterr().err
