"""Pictures of a run as SVG, by matplotlib, which is an extra: `pip install 'tertulia[simulate]'`.

The same run gives the same bytes: no dates, no random names.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any, Final

from tertulia.simulator.caching.plots import Draw, picture_of
from tertulia.simulator.caching.rows import Rows
from tertulia.simulator.outcome import Outcome, Sample
from tertulia.simulator.story import Told

# More lines than this in one picture are told apart by nobody.
_MOST_LINES: Final = 8


def has_matplotlib() -> bool:
    """Whether pictures can be drawn here."""
    return find_spec("matplotlib") is not None


def drawings(told: Sequence[Told]) -> list[tuple[str, str]]:
    """Each picture: what it shows, and the SVG element."""
    if any(one.caches is not None for one in told):
        return _drawings_of_caches(told)
    if all(one.steps is not None for one in told):
        return [("How long each step took", _svg(lambda figure: _draw_steps(figure, told)))]
    lines: list[tuple[str, Callable[[Sample], float]]] = [
        ("Messages that wait", lambda sample: sample.waiting),
        ("The wait of those that began, in seconds", lambda sample: sample.wait_s),
        ("The rung that holds", lambda sample: sample.rung),
        ("The share of accelerators in use", lambda sample: sample.busy),
        ("Accelerators", lambda sample: sample.accelerators),
        ("Messages a second", lambda sample: sample.asked_per_s),
        ("The share whose prompt is read whole", lambda sample: sample.cold),
    ]
    found = [("What became of the messages", _svg(lambda figure: _draw_shares(figure, told)))]
    for title, value in lines:
        if _says_something(told, value):
            found.append((title, _svg(partial(_draw_lines, told=told, value=value))))
    return found


def _drawings_of_caches(told: Sequence[Told]) -> list[tuple[str, str]]:
    found = []
    for one in told:
        if one.caches is not None and (picture := picture_of(one.caches)) is not None:
            title, draw = picture
            title = title if len(told) == 1 else f"{title}: {one.variant.name}"
            found.append((title, _drawn(draw, one.caches)))
    return found


def _drawn(draw: Draw, rows: Rows) -> str:
    return _svg(lambda figure: draw(figure, rows))


def _says_something(told: Sequence[Told], value: Callable[[Sample], float]) -> bool:
    """Whether the figure ever changes by more than a little, in any of the first variants."""
    for one in told[:_MOST_LINES]:
        values = [value(sample) for sample in one.outcome.samples] if one.outcome else []
        if values and max(values) - min(values) > 0.02 * max(1.0, abs(max(values))):
            return True
    return False


def _svg(draw: Callable[[Any], None]) -> str:
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "tertulia", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 4), layout="constrained")
        draw(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def _draw_lines(figure: Any, told: Sequence[Told], value: Callable[[Sample], float]) -> None:
    axes = figure.subplots()
    for one in told[:_MOST_LINES]:
        if one.outcome is None:
            continue
        samples = one.outcome.samples
        scale = _per_unit(samples)
        axes.plot(
            [sample.at / scale for sample in samples],
            [value(sample) for sample in samples],
            label=one.variant.name,
            linewidth=1.2,
            drawstyle="steps-post",
        )
        axes.set_xlabel(_UNITS[scale])
        for at, what in one.outcome.notes:
            axes.axvline(at / scale, color="0.8", linewidth=0.8)
            axes.annotate(what, (at / scale, 1), xycoords=("data", "axes fraction"), fontsize=7)
    axes.legend(fontsize=8)
    axes.grid(color="0.92")


def _draw_shares(figure: Any, told: Sequence[Told]) -> None:
    """A bar for each group of each variant: timed out, refused, over budget."""
    axes = figure.subplots()
    labels, timed_out, refused, over = [], [], [], []
    for one in told:
        for group, fate in sorted(_groups(one.outcome), reverse=True):
            labels.append(f"{one.variant.name}: {group}")
            timed_out.append(100 * fate.timed_out)
            refused.append(100 * fate.refused)
            over.append(100 * fate.over_budget)
    places = list(range(len(labels)))
    axes.barh(places, timed_out, label="timed out", color="#b3261e")
    axes.barh(places, refused, left=timed_out, label="refused", color="#e6a23c")
    left = [a + b for a, b in zip(timed_out, refused, strict=True)]
    axes.barh(places, over, left=left, label="over budget", color="#8a8f98")
    axes.set_yticks(places, labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of their messages")
    axes.legend(fontsize=8)


def _groups(outcome: Outcome | None) -> list[tuple[str, Any]]:
    return list(outcome.groups.items()) if outcome is not None else []


def _draw_steps(figure: Any, told: Sequence[Told]) -> None:
    axes = figure.subplots()
    for one in told[:_MOST_LINES]:
        assert one.steps is not None
        axes.plot(
            [step.at for step in one.steps.steps],
            [1000 * step.took_s for step in one.steps.steps],
            label=one.variant.name,
            linewidth=1.2,
            drawstyle="steps-post",
        )
    axes.set_yscale("log")
    axes.set_xlabel("s")
    axes.set_ylabel("ms a step")
    axes.legend(fontsize=8)
    axes.grid(color="0.92")


_UNITS: Final = {1.0: "s", 60.0: "min", 3600.0: "h"}


def _per_unit(samples: Sequence[Sample]) -> float:
    """Seconds, minutes or hours, as the run is long."""
    end = samples[-1].at if samples else 0.0
    return 1.0 if end <= 600 else 60.0 if end <= 6 * 3600 else 3600.0
