"""`tertulia models`: which models there are, whether they are whole, and taking one away.

It must never change a model that it only looks at.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from tertulia.replica.card import GRAPH, GRAPH_WEIGHTS
from tertulia.replica.catalogue import UnknownModel, is_catalogued, model_named
from tertulia.replica.shelf import (
    InUse,
    State,
    complete_fields,
    folder_of,
    names,
    state_of,
)
from tertulia.replica.shelf import remove as remove_folder
from tertulia.replica.shelf import verify as verify_folder
from tertulia.terminal.findings import Finding, as_lines, has_failed
from tertulia.terminal.findings import as_json as findings_as_json

Say = Callable[[str], None]
COLUMNS = 80  # where nobody says how wide the terminal is
LICENCE_CHARS = 12  # files may claim whole sentences; `show` has them


@dataclass(frozen=True)
class Row:
    """One model of the list. `bytes_total` is its size on disk, or what a pull fetches."""

    name: str
    title: str
    bytes_total: int
    window_tokens: int
    licence: str
    state: State


def list_models(models_dir: Path, say: Say, *, as_json: bool) -> None:
    """One row for each model of the catalogue and each of the user's own."""
    rows = [row_of(name, models_dir) for name in names(models_dir)]
    if as_json:
        say(json.dumps([asdict(row) for row in rows], ensure_ascii=False, indent=2))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="")
    table.add_column("NAME", no_wrap=True)
    table.add_column("MODEL", overflow="fold")
    table.add_column("SIZE", justify="right", no_wrap=True)
    table.add_column("WINDOW", justify="right", no_wrap=True)
    table.add_column("LICENCE", no_wrap=True, overflow="ellipsis", max_width=LICENCE_CHARS)
    table.add_column("STATE", no_wrap=True)
    for row in rows:
        cells = (row.name, row.title, megabytes(row.bytes_total), str(row.window_tokens or "?"))
        table.add_row(*cells, row.licence, row.state)
    say(_drawn(table))


def row_of(name: str, models_dir: Path) -> Row:
    """What the list says of one model."""
    state = state_of(name, models_dir)
    fields = complete_fields(models_dir / name) or {}
    if state in ("no", "damaged") and is_catalogued(name):
        model = model_named(name)
        n_bytes, licence = model.bytes_total, model.licence.upstream
        return Row(name, model.title, n_bytes, model.window_tokens, licence, state)
    return Row(
        name,
        str(fields.get("title", "?")),
        size_of(models_dir / name),
        int(fields.get("window_tokens", 0)),
        str(fields.get("licence", "?")),
        state,
    )


def verify(name: str | None, models_dir: Path, say: Say, complain: Say, *, as_json: bool) -> int:
    """Says for each file of a model, or of all that are there, whether it is well; the status."""
    try:
        wanted = names(models_dir) if name is None else [folder_of(name, models_dir).name]
    except UnknownModel as error:
        complain(sentence(error))
        return 1
    present = [each for each in wanted if (models_dir / each).exists()]
    if not present:
        complain(f"There is nothing to verify: {_pull(name or 'small')} fetches one.")
        return 0 if name is None else 1
    findings = [finding for each in present for finding in _verified(each, models_dir)]
    say(findings_as_json(findings) if as_json else as_lines(findings))
    return 1 if has_failed(findings) else 0


def is_confirmed(name: str, models_dir: Path) -> bool:
    """Whether the person at the terminal wants the model removed; no where there is nobody."""
    if name not in names(models_dir):
        return True  # there is nothing to lose, and the removal says so
    if not sys.stdin.isatty():
        return False
    what = f"Remove {name} ({megabytes(size_of(models_dir / name))}) from {models_dir}?"
    return typer.confirm(what, err=True)


def remove(name: str, models_dir: Path, say: Say) -> int:
    """Takes the model away; the exit status."""
    try:
        state = state_of(name, models_dir) if name in names(models_dir) else "no"
        remove_folder(name, models_dir)
    except (UnknownModel, InUse, OSError) as error:
        say(f"Not removed: {error}")
        return 1
    say(f"{name} was not installed." if state == "no" else f"{name} is removed.")
    return 0


def show_path(name: str | None, models_dir: Path, say: Say, complain: Say) -> int:
    """The models' folder, or one installed model's; the exit status."""
    if name is None:
        say(str(models_dir.absolute()))
        return 0
    try:
        folder = folder_of(name, models_dir)
    except UnknownModel as error:
        complain(sentence(error))
        return 1
    if state_of(name, models_dir) in ("no", "damaged"):
        complain(f"{name} is not installed: run {_pull(name)}")
        return 1
    say(str(folder.absolute()))
    return 0


def size_of(folder: Path) -> int:
    """The bytes of a folder's files."""
    return sum(file.stat().st_size for file in folder.glob("*") if file.is_file())


def megabytes(n_bytes: int) -> str:
    """A size for a person."""
    return f"{n_bytes / 1_000_000:.0f} MB" if n_bytes < 1e10 else f"{n_bytes / 1e9:.1f} GB"


def sentence(error: Exception) -> str:
    """An error's words as a sentence."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith(".") else ".")


def _verified(name: str, models_dir: Path) -> list[Finding]:
    catalogued = is_catalogued(name)
    again = f"`tertulia models remove {name}`, then {_pull(name)}"
    advice = (
        again if catalogued else f"remove it and pull it again from {_origin(name, models_dir)}"
    )
    return [
        Finding(
            f"{name}/{each.file}",
            "fail",
            each.problem,
            f"`tertulia models convert {name}`" if each.file in (GRAPH, GRAPH_WEIGHTS) else advice,
        )
        if each.problem
        else Finding(f"{name}/{each.file}", "ok", f"SHA-256 {each.sha256[:16]}…")
        for each in verify_folder(name, models_dir)
    ]


def _origin(name: str, models_dir: Path) -> str:
    fields = complete_fields(models_dir / name) or {}
    return str(fields.get("made_from") or fields.get("origin") or "where it came from")


def _pull(name: str) -> str:
    return f"`tertulia models pull {name}`"


def _drawn(table: Table) -> str:
    wide = Console().width if sys.stdout.isatty() else COLUMNS
    console = Console(width=max(wide, COLUMNS), highlight=False, markup=False, emoji=False)
    with console.capture() as drawn:
        console.print(table)
    return "\n".join(line.rstrip() for line in drawn.get().splitlines())
