"""The reference is complete and its links lead somewhere: a new command, setting, route or event
without a word in docs/reference fails here.

It reads the real objects (command line, settings, OpenAPI, transitions), never a list of its own.
"""

import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import cast, get_args

import pytest
from typer.main import get_command

from scripts import write_reference
from scripts.write_reference import commands, settings
from tertulia.backends.clock import SystemClock
from tertulia.backends.memory.rungs import MemoryRungs
from tertulia.cli import app
from tertulia.config import Settings
from tertulia.core.difficulty import FEATURES
from tertulia.core.turn import TRANSITIONS
from tertulia.core.types import EventKind
from tertulia.gateway.app import _api
from tertulia.gateway.figures import Figures
from tertulia.gateway.front import Front
from tertulia.gateway.problems import CODES
from tertulia.lookout import LadderFigures, Lookout
from tertulia.replica.generation import EngineCounts
from tertulia.replica.metrics import ReplicaMetrics
from tertulia.wiring.scaling import ScaleFigures
from tertulia.worker.figures import WorkerFigures

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)

# Followers compute `queue` themselves; a `reset` belongs to a connection. Neither is in the log.
EVENTS_OF_A_CONNECTION = ("queue", "reset")


@cache
def reference() -> str:
    pages = sorted((DOCS / "reference").glob("*.md"))
    assert pages, "docs/reference holds no page"
    return "\n".join(page.read_text() for page in pages)


@pytest.mark.parametrize("name", write_reference.pages())
def test_the_pages_made_from_the_code_are_up_to_date(name: str) -> None:
    page = DOCS / "reference" / name
    told = "run .venv/bin/python -m scripts.write_reference"
    assert page.read_text() == write_reference.pages()[name], told


def test_every_command_and_every_setting_is_in_the_reference() -> None:
    names = [name for name, _ in commands(get_command(app), "tertulia")]
    names += [name for name, _ in settings(Settings, "")]
    assert "tertulia serve" in names
    assert "server.port" in names
    assert [name for name in names if f"`{name}`" not in reference()] == []


def test_every_route_is_in_the_reference() -> None:
    lines = [normalised(line) for line in reference().splitlines()]
    missing = [
        f"{method} {path}"
        for method, path in routes()
        if not any(names_route(line, method, path) for line in lines)
    ]
    assert missing == [], "name the method and the path in one line of docs/reference"


def routes() -> Iterator[tuple[str, str]]:
    # The document depends on the routes alone, not on what stands behind them.
    document = _api(cast("Front", object())).openapi()
    for path, operations in document["paths"].items():
        for method in operations:
            yield method.upper(), normalised(path)


def normalised(text: str) -> str:
    """What a path parameter is called does not matter."""
    return re.sub(r"\{\w+\}", "{}", text)


def names_route(line: str, method: str, path: str) -> bool:
    whole = re.search(rf"(?<![\w/}}]){re.escape(path)}(?![\w/{{-])", line)
    return whole is not None and re.search(rf"\b{method}\b", line) is not None


def test_every_event_is_in_the_reference() -> None:
    kinds = (*get_args(EventKind), *EVENTS_OF_A_CONNECTION)
    assert "delta" in kinds
    missing = [kind for kind in kinds if f"`{kind}`" not in reference()]
    assert missing == [], "describe the event and its data in docs/reference"


def test_every_figure_is_in_the_reference() -> None:
    figures, clock = Figures(), SystemClock()
    figures.add(LadderFigures(Lookout(MemoryRungs(clock), clock, name="p")))
    figures.add(ScaleFigures(lambda: (), lambda: 0, clock))
    page = figures.page() + WorkerFigures().page()
    page += ReplicaMetrics("a model", lambda: EngineCounts(*[0] * len(fields(EngineCounts)))).text()
    names = re.findall(r"^# TYPE (\S+) ", page.decode(), re.MULTILINE)
    told = re.compile(r"`([a-z0-9:_]+)`")
    known = {name.removesuffix("_total") for name in told.findall(reference())}
    plain = {name.removesuffix("_total") for name in names if not name.endswith("_created")}
    assert {"tertulia_open_streams", "tertulia_ladder_load", "tertulia_replicas_wanted"} <= plain
    assert sorted(plain - known) == [], "describe them in docs/reference/metrics.md"


def test_every_feature_of_a_grade_is_explained_with_its_weight() -> None:
    page = (DOCS / "explanation" / "model-choice.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| (.+) \|$", page, re.MULTILINE)
    assert rows == [(one.name, f"{one.weight:g}", one.why) for one in FEATURES]


def test_the_diagram_of_the_turn_is_the_table() -> None:
    drawn = ["stateDiagram-v2", "    [*] --> queued: admit"]
    finals = []
    for status, steps in TRANSITIONS.items():
        drawn += [f"    {status} --> {after}: {event}" for event, after in steps.items()]
        finals += [] if steps else [f"    {status} --> [*]"]
    text = "\n".join(drawn + finals)
    assert f"```mermaid\n{text}\n```" in (DOCS / "explanation" / "turn-protocol.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = CODE.sub("", page.read_text())
    targets = LINK.findall(text) + PICTURE.findall(text)
    broken = [target for target in targets if not resolves(page, target)]
    assert broken == []


def resolves(page: Path, target: str) -> bool:
    """Whether a relative link names a file of the tree, and its anchor a heading of that file."""
    if re.match(r"[a-z]+:", target):
        return True  # the world outside is not ours to check
    name, _, anchor = target.partition("#")
    file = (page.parent / name).resolve() if name else page
    if not file.exists() or ROOT not in file.parents:
        return False
    return not anchor or anchor in {slug(heading) for heading in HEADING.findall(file.read_text())}


def slug(heading: str) -> str:
    """The anchor that Markdown viewers make of a heading."""
    plain = re.sub(r"[`*_]|\[|\]\([^)]*\)", "", heading).lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("| `GET /v1/conversations/{}` | one |", True),
        ("| `POST/GET/DELETE /v1/conversations/{}` | all |", True),
        ("| `GET /v1/conversations/{}/messages` | more |", False),
        ("| `DELETE /v1/conversations/{}` | other method |", False),
    ],
)
def test_a_route_is_told_from_its_neighbours(line: str, *, expected: bool) -> None:
    assert names_route(line, "GET", "/v1/conversations/{}") is expected


def test_every_error_code_is_in_the_reference() -> None:
    assert [code for code in CODES if f"`{code}`" not in reference()] == []
