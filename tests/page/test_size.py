"""What the browser needs for the first paint stays small, whatever the page grows to."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

PAGES = Path(__file__).parents[2] / "src/tertulia/gateway/pages"
MOST_BYTES = 65_000  # of script, packed; a second on a slow phone line
_FIRST = re.compile(r"""(?:src|href)="(/assets/[^"]+\.js)\"""")
_STATIC_IMPORT = re.compile(r"""(?:^|[;}\s])(?:import|export)[^()'";]*["'](\./[^"']+\.js)["']""")


def first_paint() -> dict[str, int]:
    """Each script that the first paint waits for, with its packed size."""
    waiting = _FIRST.findall((PAGES / "index.html").read_text())
    sizes: dict[str, int] = {}
    while waiting:
        name = waiting.pop()
        if name in sizes:
            continue
        script = (PAGES / name.lstrip("/")).read_bytes()
        sizes[name] = len(gzip.compress(script, 9))
        waiting += [f"/assets/{one[2:]}" for one in _STATIC_IMPORT.findall(script.decode())]
    return sizes


def test_the_scripts_of_the_first_paint_are_small() -> None:
    sizes = first_paint()
    assert sizes, "the page has no script"
    assert sum(sizes.values()) <= MOST_BYTES, sizes


def test_markdown_colours_and_formulas_come_later() -> None:
    early = " ".join(first_paint())
    for late in ("markdown", "highlight", "formula"):
        assert list((PAGES / "assets").glob(f"{late}-*.js")), f"{late} is not a script of its own"
        assert late not in early
