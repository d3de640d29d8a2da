"""`tertulia models`: which models there are, which are installed, and installing one.

It must leave a clear sentence behind whenever a model is not installed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from tertulia.replica.catalogue import CATALOGUE, CatalogueModel, UnknownModel, model_named
from tertulia.replica.install import InstallFailed, Source, install, is_installed
from tertulia.replica.install import Progress as Step

_DOING: Final = {
    "download": "fetching",
    "join": "joining its parts",
    "verify": "verifying",
    "requantise": "rewriting it for this processor",
    "tokenizer": "making its tokenizer",
}
Say = Callable[[str], None]


def list_models(models_dir: Path, say: Say) -> None:
    """One line for each model of the catalogue."""
    rows = [("NAME", "MODEL", "SIZE", "LICENCE", "INSTALLED")]
    for model in CATALOGUE:
        size = f"{model.bytes_total / 1_000_000:.0f} MB"
        rows.append((model.name, model.title, size, model.licence, state_of(model, models_dir)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say("  ".join(cells).rstrip())


def state_of(model: CatalogueModel, models_dir: Path) -> str:
    """`yes`, `no`, or `damaged` for a folder that is there but not complete."""
    if is_installed(model, models_dir):
        return "yes"
    return "damaged" if (models_dir / model.name).exists() else "no"


def install_model(name: str, models_dir: Path, source: Source, say: Say) -> int:
    """Makes the model complete, showing how far it is; the exit status."""
    try:
        model = model_named(name)
    except UnknownModel as error:
        say(f"{str(error)[0].upper()}{str(error)[1:]}.")
        return 1
    if is_installed(model, models_dir):
        say(f"{model.title} is installed in {models_dir / name}")
        return 0
    say(f"Installing {model.title} ({model.bytes_total / 1_000_000:.0f} MB, {model.licence}).")
    try:
        with _shown(say) as report:
            folder = install(model, models_dir, report, source)
    except InstallFailed as error:
        say(f"Not installed: {error}")
        return 1
    except KeyboardInterrupt:
        say("Interrupted. What was fetched is kept; the same command goes on from there.")
        return 130
    say(f"{model.title} is installed in {folder}")
    return 0


def report_install(name: str, models_dir: Path, source: Source, say: Say) -> int:
    """The same for a program that watches: each step as one JSON line; the exit status."""
    try:
        install(model_named(name), models_dir, lambda step: say(json.dumps(asdict(step))), source)
    except (InstallFailed, UnknownModel) as error:
        say(json.dumps({"failed": str(error)}))
        return 1
    return 0


def show_path(name: str | None, models_dir: Path, say: Say, complain: Say) -> int:
    """The models' folder, or one installed model's; the exit status."""
    if name is None:
        say(str(models_dir.absolute()))
        return 0
    try:
        model = model_named(name)
    except UnknownModel as error:
        complain(str(error))
        return 1
    if not is_installed(model, models_dir):
        complain(f"{name} is not installed: run `tertulia models install {name}`")
        return 1
    say(str((models_dir / name).absolute()))
    return 0


@contextmanager
def _shown(say: Say) -> Iterator[Callable[[Step], None]]:
    """A moving bar on a terminal, a line now and then elsewhere."""
    if not sys.stderr.isatty():
        yield _Lines(say)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("fetching", total=None)

        def report(step: Step) -> None:
            if step.stage == "download":
                bar.update(task, description="fetching", completed=step.done, total=step.total)
            elif step.stage in _DOING:
                bar.update(task, description=_DOING[step.stage])

        yield report


class _Lines:
    """Says each stage once, and each tenth of a download."""

    def __init__(self, say: Say):
        self._say = say
        self._said = ""

    def __call__(self, step: Step) -> None:
        if step.stage not in _DOING:
            return
        line = f"  {_DOING[step.stage]}"
        if step.stage == "download" and step.total:
            line += f" {10 * (10 * step.done // step.total)} %"
        if line != self._said:
            self._said = line
            self._say(line)
