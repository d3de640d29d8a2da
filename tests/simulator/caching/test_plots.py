"""Pictures: refused with a sentence where they can't be, and of the same bytes each time."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tertulia.simulator.caching.plots import NoPlots, plot
from tertulia.simulator.caching.rows import Rows

HITS = Rows(
    "hits",
    ("cache_tokens", "spill_share", "home", "random", "affinity", "sd", "ours"),
    ((500_000, 0.0, "stays", 0.4, 0.6, 0.0, 0.6), (1_000_000, 0.1, "moves", 0.5, 0.8, 0.0, 0.8)),
)
FLEETS = Rows(
    "fleets",
    ("policy", "cache_tokens", "open", "hit_share", "ttft_p95_s", "good_per_s"),
    (("ours", 3_000_000, 6_500, 0.9, 0.2, 100.0), ("random", 3_000_000, 6_500, 0.4, 9.0, 6.0)),
)
has_matplotlib = pytest.mark.skipif(
    find_spec("matplotlib") is None, reason="matplotlib, of the extra `simulate`, is not installed"
)


def test_a_file_that_is_no_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoPlots, match=r"ends with \.svg or \.png"):
        plot(HITS, tmp_path / "table.txt")


def test_a_table_without_a_picture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoPlots, match="no picture"):
        plot(Rows("bare", ("name",), (("one",),)), tmp_path / "table.svg")


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NoPlots, match=r"tertulia\[simulate\]"):
        plot(HITS, tmp_path / "table.svg")


@has_matplotlib
@pytest.mark.parametrize("rows", [HITS, FLEETS], ids=["hits", "fleets"])
def test_a_picture_has_the_same_bytes_each_time(rows: Rows, tmp_path: Path) -> None:
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    plot(rows, first)
    plot(rows, second)
    assert first.read_bytes() == second.read_bytes()
    assert b"<svg" in first.read_bytes()
