"""One HTML page of a scenario: what was put in, tables, and pictures where matplotlib is there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, StrictUndefined

from tertulia import __version__
from tertulia.simulator.plots import drawings, has_matplotlib
from tertulia.simulator.scenario import Play, merge
from tertulia.simulator.story import Told
from tertulia.simulator.table import rows

NAME: Final = "report.html"

_PAGE: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{ play.title }}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 1rem; }
table { border-collapse: collapse; display: block; font-size: 13px; overflow-x: auto; }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .6rem; text-align: left; }
td { white-space: nowrap; }
td:last-child { white-space: normal; min-width: 14rem; }
svg { height: auto; max-width: 100%; }
pre { background: #f5f5f5; overflow-x: auto; padding: .6rem; }
</style>
<h1>{{ play.title }}</h1>
<p>{{ play.about }}</p>
<p>Simulated by Tertulia {{ version }}, scenario <code>{{ play.name }}</code>, seed {{ seed }}.
The same scenario and seed give this page again, byte by byte.</p>
<h2>What became of it</h2>
<table>
<tr>{% for name in names %}<th>{{ name }}</th>{% endfor %}</tr>
{% for row in rows %}<tr>{% for name in names %}<td>{{ row[name] }}</td>{% endfor %}</tr>
{% endfor %}</table>
{% if notes %}<h2>What happened</h2>
<ul>{% for note in notes %}<li>{{ note }}</li>
{% endfor %}</ul>{% endif %}
{% for title, svg in pictures %}<h2>{{ title }}</h2>
{{ svg }}
{% endfor %}
{% if not can_draw %}<p>No pictures: matplotlib is not installed here
(<code>pip install 'tertulia[simulate]'</code>).</p>
{% endif %}
<h2>What was put in</h2>
{% for name, text in inputs %}<details><summary>{{ name }}</summary><pre>{{ text }}</pre></details>
{% endfor %}
</html>
"""


def write_report(folder: Path, play: Play, told: Sequence[Told]) -> Path:
    """Writes the page into the folder, which is made if need be; OSError where that can't be."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    path.write_text(page(play, told), encoding="utf-8")
    return path


def page(play: Play, told: Sequence[Told]) -> str:
    """The page as text."""
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined)
    found = rows(told)
    can_draw = has_matplotlib()
    pictures = drawings(told) if can_draw else []
    return environment.from_string(_PAGE).render(
        play=play,
        version=__version__,
        seed=told[0].variant.scenario.seed,
        names=list(found[0]) if found else [],
        rows=found,
        notes=_notes(told),
        can_draw=can_draw,
        # Drawn by matplotlib from our own numbers; names are escaped by it.
        pictures=[(title, Markup(svg)) for title, svg in pictures],  # noqa: S704  # see above
        inputs=[(one.variant.name, _input(one)) for one in told],
    )


def _notes(told: Sequence[Told]) -> list[str]:
    found = []
    for one in told:
        if one.outcome is None:
            continue
        rungs = [f"rung {rung} at {at:.0f} s" for at, rung, _ in one.outcome.steps]
        events = [f"{what} at {at:.0f} s" for at, what in one.outcome.notes]
        if rungs or events:
            shown = ", ".join([*events, *rungs[:20]])
            more = f", and {len(rungs) - 20} steps more" if len(rungs) > 20 else ""
            found.append(f"{one.variant.name}: {shown}{more}")
    return found


def _input(one: Told) -> str:
    given: dict[str, Any] = one.variant.scenario.model_dump(exclude_defaults=True, mode="json")
    return json.dumps(merge(given, {}), indent=2, ensure_ascii=False)
