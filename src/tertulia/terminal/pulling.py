"""`tertulia models pull`, `quantize` and `convert`: making a model, and showing how far that is.

It must leave a clear sentence behind whenever a model is not installed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from tertulia.replica.catalogue import CatalogueModel, UnknownModel, is_catalogued, model_named
from tertulia.replica.gathering import Source
from tertulia.replica.graph import convert as make_graph
from tertulia.replica.hub import hub_file
from tertulia.replica.install import install
from tertulia.replica.own import OwnModel, adopt, quantise
from tertulia.replica.placing import InstallFailed, Report
from tertulia.replica.placing import Progress as Step
from tertulia.replica.requantise import FILE_TYPES
from tertulia.replica.shelf import complete_fields, folder_of, is_installed
from tertulia.terminal.models import Say, megabytes, sentence

_DOING: Final = {
    "wait": "waiting for another command that works on it",
    "download": "fetching",
    "join": "joining its parts",
    "verify": "verifying",
    "requantise": "rewriting it",
    "tokenizer": "making its tokenizer",
    "graph": "making its graph",
}


@dataclass(frozen=True)
class Wanted:
    """What the command line asks for: a name or an address, or a file and a name."""

    what: str | None
    file: Path | None
    name: str | None
    sha256: str | None
    source: Source = "auto"
    first_time: bool = False


def pull(wanted: Wanted, models_dir: Path, say: Say) -> int:
    """Makes the model complete, showing how far it is; the exit status."""
    try:
        order = _order(wanted)
        if isinstance(order, CatalogueModel):
            if is_installed(order, models_dir):
                say(f"{order.title} is installed in {models_dir / order.name}")
                return 0
            licence = order.licence.upstream
            say(f"Pulling {order.title} ({megabytes(order.bytes_total)}, {licence}).")
        status = _shown_to_end(lambda report: _made(order, wanted, models_dir, report), say)
    except (InstallFailed, UnknownModel) as error:
        say(f"Not installed: {error}")
        return 1
    if status == 0 and isinstance(order, OwnModel):
        fields = complete_fields(models_dir / order.name) or {}
        say(f"For the next time: --sha256 {fields.get('source_sha256')}")
    return status


def report_pull(wanted: Wanted, models_dir: Path, say: Say) -> int:
    """The same for a program that watches: each step as one JSON line; the exit status."""
    try:
        _made(_order(wanted), wanted, models_dir, lambda step: say(json.dumps(asdict(step))))
    except (InstallFailed, UnknownModel) as error:
        say(json.dumps({"failed": str(error)}))
        return 1
    return 0


def quantize(
    name: str, type_name: str | None, new_name: str | None, models_dir: Path, say: Say
) -> int:
    """Makes a model of another precision beside an installed one; the exit status."""
    if type_name is None:
        width = max(len(each.name) for each in FILE_TYPES)
        for each in FILE_TYPES:
            say(f"{each.name:<{width}}  {each.weight_bits:4.1f} bits a weight: {each.good_for}")
        return 0
    try:
        source, made = folder_of(name, models_dir), new_name or f"{name}-{type_name.lower()}"
        return _shown_to_end(
            lambda report: quantise(source, type_name, made, models_dir, report), say
        )
    except (InstallFailed, UnknownModel) as error:
        say(sentence(error))
        return 1


def convert(name: str, models_dir: Path, say: Say) -> int:
    """Makes the graph of an installed model, with which OpenVINO runs it; the exit status."""
    try:
        folder = folder_of(name, models_dir)
        return _shown_to_end(lambda report: make_graph(folder, report), say, "has a graph")
    except (InstallFailed, UnknownModel) as error:
        say(sentence(error))
        return 1


def _order(wanted: Wanted) -> CatalogueModel | OwnModel:
    """What to install; `InstallFailed` for words that do not go together."""
    sha256 = wanted.sha256.lower() if wanted.sha256 else None
    if sha256 and not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise InstallFailed("--sha256 takes 64 hexadecimal digits")
    if wanted.what and wanted.what.startswith("hf:"):
        return _from_hub(wanted, sha256)
    name = wanted.what or wanted.name
    if wanted.what and wanted.name not in (None, wanted.what):
        raise InstallFailed(
            "--name is for a --file or an address: a model of the catalogue has one"
        )
    if name is None:
        what = "give its --name as well" if wanted.file else "`tertulia models list` shows them"
        raise InstallFailed(f"which model? {what}")
    if is_catalogued(name) or wanted.file is None:
        model = model_named(name)
        if sha256 not in (None, model.sha256):
            raise InstallFailed(f"{name} is the file with SHA-256 {model.sha256} in the catalogue")
        return model
    return OwnModel(name, wanted.file, sha256)


def _from_hub(wanted: Wanted, sha256: str | None) -> OwnModel:
    assert wanted.what is not None
    if wanted.file is not None:
        raise InstallFailed("give an address or a --file, not both")
    try:
        hub = hub_file(wanted.what)
    except ValueError as error:
        raise InstallFailed(str(error)) from error
    if sha256 is None and not wanted.first_time:
        raise InstallFailed(
            "a file from a hub needs its --sha256, which its page shows; --first-time takes it as "
            "it comes and prints the hash for the next time"
        )
    stem = hub.file.rpartition("/")[2].removesuffix(".gguf").lower()
    return OwnModel(wanted.name or re.sub(r"[^a-z0-9]+", "-", stem).strip("-"), hub, sha256)


def _made(
    order: CatalogueModel | OwnModel, wanted: Wanted, models_dir: Path, report: Report
) -> Path:
    if isinstance(order, CatalogueModel):
        return install(order, models_dir, report, wanted.source, file=wanted.file)
    return adopt(order, models_dir, report)


def _shown_to_end(make: Callable[[Report], Path], say: Say, what: str = "is installed") -> int:
    try:
        with _shown(say) as report:
            folder = make(report)
    except KeyboardInterrupt:
        say("Interrupted. What was fetched is kept; the same command goes on from there.")
        return 130
    say(f"{folder.name} {what} in {folder}")
    return 0


@contextmanager
def _shown(say: Say) -> Iterator[Report]:
    """A moving bar on a terminal, a line now and then elsewhere."""
    if not sys.stderr.isatty():
        yield _Lines(say)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    rate = (TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, *rate, console=Console(stderr=True)) as bar:
        yield _Bar(bar)


class _Bar:
    """One line that moves; what an earlier run had fetched does not count for the rate."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task: TaskID | None = None

    def __call__(self, step: Step) -> None:
        if step.stage not in _DOING:
            return
        counts = step.stage == "download"
        if self._task is None:
            total, completed = (step.total, step.done) if counts else (None, 0)
            self._task = self._bar.add_task("", total=total, completed=completed)
        self._bar.update(self._task, description=_DOING[step.stage])
        if counts:
            self._bar.update(self._task, completed=step.done, total=step.total)


class _Lines:
    """Says each stage once, and each tenth of a download."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._said = ""

    def __call__(self, step: Step) -> None:
        if step.stage not in _DOING:
            return
        line = f"  {_DOING[step.stage]}"
        if step.stage == "download" and step.total:
            line += f" {10 * (10 * step.done // step.total)} % of {megabytes(step.total)}"
        if line != self._said:
            self._said = line
            self._say(line)
