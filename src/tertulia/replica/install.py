"""Installs a model of the catalogue: fetch, join, verify, requantise, tokenizer, put into place.

It must never accept a file with another hash than the catalogue's.
"""

import shutil
from pathlib import Path

from tertulia.replica.card import WEIGHTS, Card, checked_header, describe
from tertulia.replica.catalogue import CatalogueModel
from tertulia.replica.gathering import Gathered, Source, from_file, gathered
from tertulia.replica.placing import Progress, Report, check_room, placed
from tertulia.replica.requantise import requantise
from tertulia.replica.shelf import is_installed


def install(
    model: CatalogueModel,
    models_dir: Path,
    report: Report,
    source: Source = "auto",
    *,
    hub_address: str | None = None,
    file: Path | None = None,
) -> Path:
    """Makes `<models_dir>/<name>` complete and returns it; quick when it already is.

    `file` holds the catalogue's bytes already, and nothing is fetched. Errors are `InstallFailed`.
    """

    def make(incoming: Path) -> Path:
        copies = 2 if model.requantise is None else 3  # archives, whole, requantised
        check_room(model.title, copies * model.bytes_total, incoming)
        if file is not None:
            whole = from_file(file, model.sha256, incoming, report)
        else:
            whole = gathered(model, incoming, report, source, hub_address)
        return _ready(model, whole, incoming, report)

    def is_done() -> bool:
        return is_installed(model, models_dir)

    return placed(model.name, models_dir, report, is_done, make)


def emptied(ready: Path) -> Path:
    """A new folder to make a model in; what an earlier run left in it is gone."""
    shutil.rmtree(ready, ignore_errors=True)
    ready.mkdir()
    return ready


def take(whole: Path, gguf: Path) -> None:
    """Gives the file its place; it keeps its old name as well, should this process end early."""
    try:
        gguf.hardlink_to(whole)
    except OSError:  # a file system without links
        whole.rename(gguf)


def _ready(model: CatalogueModel, whole: Gathered, incoming: Path, report: Report) -> Path:
    checked_header(whole.gguf)
    ready = emptied(incoming / "ready")
    if model.requantise is None:
        take(whole.gguf, ready / WEIGHTS)
    else:
        report(Progress("requantise", 0, 1))
        requantise(whole.gguf, ready / WEIGHTS, model.requantise)
    card = Card(
        name=model.name,
        served_id=model.served_id,
        title=model.title,
        licence=model.licence.upstream,
        licence_from=model.licence.known_from,
        origin=whole.origin,
        source_sha256=model.sha256,
        sampling=model.sampling,
        window_tokens=model.window_tokens,
        requantised=model.requantise,
    )
    describe(card, ready, report)
    return ready
