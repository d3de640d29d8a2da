"""Installs models that the catalogue does not have: a GGUF of the user's own, or a converted one.

It must never take a file whose hash nobody has named, unless it was told that this is the first
time; and never a name of the catalogue, whose files are known.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from tertulia.replica.card import WEIGHTS, Card, checked_header, describe
from tertulia.replica.catalogue import HubFile, is_catalogued
from tertulia.replica.description import DescriptionUnreadable, read_description
from tertulia.replica.gathering import Gathered, from_file, from_hub
from tertulia.replica.header import Header
from tertulia.replica.hub import HubUnavailable, size_of
from tertulia.replica.install import emptied, take
from tertulia.replica.placing import (
    InstallFailed,
    Progress,
    Report,
    check_room,
    placed,
    safe_name,
    sha256_of,
)
from tertulia.replica.requantise import file_type_named, requantise
from tertulia.replica.shelf import complete_fields


@dataclass(frozen=True)
class OwnModel:
    """A GGUF file that the user names. `sha256` is None if it is taken as it comes."""

    name: str
    source: Path | HubFile
    sha256: str | None


def adopt(
    own: OwnModel, models_dir: Path, report: Report, *, hub_address: str | None = None
) -> Path:
    """Makes `<models_dir>/<name>` from this file and returns it; errors are `InstallFailed`."""
    _check_name(own.name)
    if isinstance(own.source, Path):
        own = _read_once(own, own.source)

    def is_done() -> bool:
        fields = complete_fields(models_dir / own.name)
        if fields is None:
            return False
        if own.sha256 != fields.get("source_sha256"):
            raise InstallFailed(
                f"{own.name} is installed already, from the file with SHA-256 "
                f"{fields.get('source_sha256')}: remove it first, or choose another name"
            )
        return True

    def make(incoming: Path) -> Path:
        whole = _gathered(own, incoming, report, hub_address)
        header = checked_header(whole.gguf)
        ready = emptied(incoming / "ready")
        take(whole.gguf, ready / WEIGHTS)
        describe(_card_of(own.name, header, whole), ready, report)
        return ready

    return placed(own.name, models_dir, report, is_done, make)


def quantise(source: Path, type_name: str, name: str, models_dir: Path, report: Report) -> Path:
    """Makes a new model `name` from the one in the folder `source`; errors are `InstallFailed`."""
    _check_name(name)
    file_type = file_type_named(type_name)
    fields = complete_fields(source)
    if fields is None:
        raise InstallFailed(f"{source} is not a complete model")
    header = checked_header(source / WEIGHTS)

    def is_done() -> bool:
        if complete_fields(models_dir / name) is not None:
            raise InstallFailed(f"{name} is installed already: remove it first, or give --name")
        return False

    def make(incoming: Path) -> Path:
        ready = emptied(incoming / "ready")
        check_room(name, int(header.n_parameters * file_type.weight_bits / 8), incoming)
        report(Progress("requantise", 0, 1))
        requantise(source / WEIGHTS, ready / WEIGHTS, file_type.name)
        checked_header(ready / WEIGHTS)
        describe(_converted(source, fields, name, header, file_type.name), ready, report)
        return ready

    return placed(name, models_dir, report, is_done, make)


def _read_once(own: OwnModel, source: Path) -> OwnModel:
    """The same with its hash, so that the file which is installed is the one looked at here."""
    if not source.is_file():
        raise InstallFailed(f"there is no file {source}")
    checked_header(source)
    found = sha256_of(source)
    if own.sha256 not in (None, found):
        raise InstallFailed(f"{source} has SHA-256 {found}, expected {own.sha256}: refused")
    return replace(own, sha256=found)


def _gathered(own: OwnModel, incoming: Path, report: Report, hub_address: str | None) -> Gathered:
    try:
        if isinstance(own.source, HubFile):
            n_bytes = size_of(own.source, hub_address)
            check_room(own.name, n_bytes, incoming)
            return from_hub(own.source, n_bytes, own.sha256, incoming, report, hub_address)
        check_room(own.name, own.source.stat().st_size, incoming)
        return from_file(own.source, own.sha256, incoming, report)
    except HubUnavailable as error:
        advice = "Check the address, the network and, behind a proxy, the variable HTTPS_PROXY."
        raise InstallFailed(f"{error}\n{advice}") from error


def _card_of(name: str, header: Header, whole: Gathered) -> Card:
    licence = header.text("general.license")
    return Card(
        name=name,
        served_id=name,
        title=header.text("general.name") or name,
        licence=licence or "unknown",
        licence_from="the GGUF file alone: nobody checked it" if licence else "nowhere",
        origin=whole.origin,
        source_sha256=whole.sha256,
    )


def _converted(
    source: Path, fields: dict[str, object], name: str, header: Header, file_type: str
) -> Card:
    try:
        described = read_description(source)
    except DescriptionUnreadable as error:
        raise InstallFailed(str(error)) from error
    sha256 = str(fields["gguf_sha256"])
    return Card(
        name=name,
        served_id=name,
        title=str(fields.get("title") or name),
        licence=described.licence,
        licence_from=str(fields.get("licence_from") or "the model that it was made from"),
        origin=str(fields.get("origin") or "not recorded"),
        source_sha256=sha256,
        sampling=described.sampling,
        window_tokens=described.window_tokens,
        requantised=file_type,
        made_from=f"{source.name} ({header.file_type}, SHA-256 {sha256})",
    )


def _check_name(name: str) -> None:
    safe_name(name)
    if is_catalogued(name):
        raise InstallFailed(f"{name} is the catalogue's name: choose another with --name")
