"""Pictures of tables: each kind has its own, and some have none."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from tertulia.simulator.caching.plots import picture_of
from tertulia.simulator.caching.rows import Rows
from tertulia.simulator.plots import drawings
from tertulia.simulator.scenario import Play, parse
from tertulia.simulator.story import Told

HITS = Rows(
    ("cache_tokens", "spill_share", "home", "random", "affinity", "sd", "ours"),
    ((500_000, 0.0, "stays", 0.4, 0.6, 0.0, 0.6), (1_000_000, 0.1, "moves", 0.5, 0.8, 0.0, 0.8)),
)
FLEETS = Rows(
    ("policy", "cache_tokens", "open", "hit_share", "ttft_p95_s", "good_per_s"),
    (("ours", 3_000_000, 6_500, 0.9, 0.2, 100.0), ("random", 3_000_000, 6_500, 0.4, 9.0, 6.0)),
)
TWO: Play = parse(
    "two", 'title = "t"\n[caches]\nkind = "hits"\n[[variants]]\nname = "a"\n[[variants]]'
)
has_matplotlib = pytest.mark.skipif(
    find_spec("matplotlib") is None, reason="matplotlib, of the extra `simulate`, is not installed"
)


@pytest.mark.parametrize("rows", [Rows(("name",), (("one",),)), Rows(HITS.columns, ())])
def test_some_tables_have_no_picture(rows: Rows) -> None:
    assert picture_of(rows) is None
    assert drawings([Told(TWO.variants[0], None, caches=rows)]) == []


@has_matplotlib
@pytest.mark.parametrize("rows", [HITS, FLEETS], ids=["hits", "fleets"])
def test_a_picture_has_the_same_bytes_each_time(rows: Rows) -> None:
    told = [Told(TWO.variants[0], None, caches=rows)]
    ((title, svg),) = drawings(told)
    assert svg.startswith("<svg")
    assert drawings(told) == [(title, svg)]


@has_matplotlib
def test_each_variant_has_a_picture_of_its_own() -> None:
    told = [Told(variant, None, caches=HITS) for variant in TWO.variants]
    assert [title.rpartition(": ")[2] for title, _ in drawings(told)] == ["a", "2"]
