"""Pictures of what caches and placements are compared by, drawn into a figure of matplotlib's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tertulia.simulator.caching.rows import Rows

Draw = Callable[[Any, Rows], None]


def picture_of(rows: Rows) -> tuple[str, Draw] | None:
    """What the picture of this table shows, and what draws it; None: it has none."""
    if not rows.rows:
        return None
    return next((found for column, found in _PICTURES.items() if column in rows.columns), None)


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
        axes.grid(color="0.92")
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
    axes.grid(color="0.92")
    axes.legend()


_PICTURES: Final[dict[str, tuple[str, Draw]]] = {
    "hit_share": ("Hits, waits and turns inside the targets", _draw_fleet),
    "spill_share": ("Found of the prompts, by the size of the caches", _draw_hits),
}
