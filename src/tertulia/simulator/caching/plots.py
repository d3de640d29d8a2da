"""Pictures of tables, by matplotlib, which comes with the extra `simulate`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tertulia.simulator.caching.rows import Rows

_ENDINGS: Final = (".svg", ".png")
# The same table gives the same bytes: no date, and names of parts that chance does not choose.
_RC: Final[Any] = {"svg.hashsalt": "tertulia", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}


class NoPlots(Exception):
    """No picture can be made, and why, in a sentence."""


def plot(rows: Rows, path: Path) -> None:
    """Writes the picture of a table.

    NoPlots without matplotlib, for a file that is no picture, and for a table that has none.
    """
    if path.suffix not in _ENDINGS:
        raise NoPlots(f"A picture ends with {' or '.join(_ENDINGS)}, not {path.suffix or 'so'}.")
    draws = next((draws for column, draws in _PICTURES.items() if column in rows.columns), None)
    if draws is None or not rows.rows:
        raise NoPlots("This table has no picture.")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise NoPlots("Pictures need matplotlib: pip install 'tertulia[simulate]'.") from None
    with matplotlib.rc_context(_RC):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        draws(figure, rows)
        figure.suptitle(rows.title)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, metadata=metadata)


def _draw_fleet(figure: Any, rows: Rows) -> None:
    """A group of bars for each size of cache (and crowd): hits, waits, turns inside the targets."""
    crowd = rows.column("open" if "open" in rows.columns else "requests")
    sizes = rows.column("cache_tokens")
    cases = list(dict.fromkeys(zip(sizes, crowd, strict=True)))
    names = [f"{float(size) / 1e6:g} M\n{who:,}" for size, who in cases]
    shown = ("hit_share", "found of the prompts", False), ("ttft_p95_s", "TTFT p95, s", True)
    pictures = (*shown, ("good_per_s", "turns/s inside the targets", False))
    policies = list(dict.fromkeys(rows.column("policy")))
    width = 0.8 / len(policies)
    for axes, (column, label, is_logarithmic) in zip(
        figure.subplots(1, len(pictures)), pictures, strict=True
    ):
        values = rows.column(column)
        for number, policy in enumerate(policies):
            found = {
                (size, who): value
                for name, size, who, value in zip(
                    rows.column("policy"), sizes, crowd, values, strict=True
                )
                if name == policy
            }
            places = [place + width * number for place in range(len(cases))]
            axes.bar(places, [found.get(case, 0) for case in cases], width, label=policy)
        axes.set_xticks([place + 0.4 - width / 2 for place in range(len(cases))], names)
        axes.set_title(label)
        if is_logarithmic:
            axes.set_yscale("log")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=8)


def _draw_hits(figure: Any, rows: Rows) -> None:
    """A line for each way to place turns."""
    axes = figure.subplots()
    for spill, home in dict.fromkeys(
        zip(rows.column("spill_share"), rows.column("home"), strict=True)
    ):
        mine = [row for row in rows.rows if row[1:3] == (spill, home)]
        sizes = [f"{float(row[0]) / 1e6:g} M" for row in mine]
        after = f", {float(spill):.0%} elsewhere, home {home}" if spill else ""
        axes.plot(sizes, [row[4] for row in mine], marker="o", label=f"by conversation{after}")
        if not spill:
            axes.plot(sizes, [row[3] for row in mine], marker="s", label="by chance")
    axes.set_xlabel("tokens of cache on each replica")
    axes.set_ylabel("found of the prompts")
    axes.set_ylim(0, 1)
    axes.legend()


_PICTURES: Final[dict[str, Callable[[Any, Rows], None]]] = {
    "hit_share": _draw_fleet,
    "spill_share": _draw_hits,
}
