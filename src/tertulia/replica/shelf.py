"""The folder of installed models: what stands there, whether it is whole, and taking one away.

It must never join a name to the folder before it is known to be a safe one.
"""

import fcntl
import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from tertulia.description import DESCRIPTION, DescriptionUnreadable, read_fields
from tertulia.replica.card import (
    FILES,
    FORMAT,
    GRAPH,
    GRAPH_WEIGHTS,
    MADE,
    TOKENIZER,
    WEIGHTS,
    record_files,
    stamp_of,
)
from tertulia.replica.catalogue import (
    CATALOGUE,
    CatalogueModel,
    UnknownModel,
    is_catalogued,
    model_named,
)
from tertulia.replica.header import GgufRefused, read_header
from tertulia.replica.placing import (
    InstallFailed,
    discard,
    incoming_folder,
    locked,
    safe_name,
    sha256_of,
)

# `verified`: nothing has changed since its hashes were last found right.
State = Literal["verified", "installed", "damaged", "no"]


class InUse(RuntimeError):
    """An engine runs this model, or another command works on it."""


@dataclass(frozen=True)
class Checked:
    """One file of a model, and what is wrong with it; `problem` is empty if nothing is."""

    file: str
    sha256: str
    problem: str = ""


def names(models_dir: Path) -> list[str]:
    """The names of all models: those of the catalogue first, then those of the user's own."""
    known = [model.name for model in CATALOGUE]
    folders = sorted(models_dir.iterdir()) if models_dir.is_dir() else []
    own = [each.name for each in folders if each.is_dir() and _is_safe(each.name)]
    return known + [name for name in own if name not in known]


def folder_of(name: str, models_dir: Path) -> Path:
    """Where the model is or would be; `UnknownModel` for a name that stands nowhere."""
    known = names(models_dir)
    if name not in known:
        raise UnknownModel(f"there is no model named {name!r}; there are: {', '.join(known)}")
    return models_dir / name


def is_installed(model: CatalogueModel, models_dir: Path) -> bool:
    """Whether this very model is complete there; reads only the small description."""
    fields = complete_fields(models_dir / model.name)
    return (
        fields is not None
        and fields.get("source_sha256") == model.sha256
        and fields.get("requantised") == model.requantise
    )


def state_of(name: str, models_dir: Path) -> State:
    """How the model stands; reads nothing large."""
    folder = models_dir / name
    if not folder.exists():
        return "no"
    if complete_fields(folder) is None:
        return "damaged"
    if is_catalogued(name) and not is_installed(model_named(name), models_dir):
        return "damaged"
    recorded = _recorded(folder)
    try:
        same = all(
            stamp_of(folder / file).items() <= kept.items() for file, kept in recorded.items()
        )
    except OSError:  # its graph has gone: llama.cpp needs none
        same = False
    return "verified" if recorded and same else "installed"


def complete_fields(folder: Path) -> dict[str, Any] | None:
    """The description of a model whose files are all there with their sizes, else None."""
    try:
        fields = read_fields(folder)
        size = (folder / WEIGHTS).stat().st_size
    except (OSError, DescriptionUnreadable):
        return None
    whole = fields.get("format") == FORMAT and fields.get("gguf_bytes") == size
    return fields if whole and (folder / TOKENIZER).is_file() else None


def is_whole(folder: Path) -> bool:
    """What can be told in a moment: the large file's hash is not taken."""
    try:
        with (folder / WEIGHTS).open("rb") as weights:
            magic = weights.read(4)
        digest = sha256_of(folder / TOKENIZER)
        return magic == b"GGUF" and digest == read_fields(folder).get("tokenizer_sha256")
    except (OSError, DescriptionUnreadable):
        return False


def verify(name: str, models_dir: Path) -> list[Checked]:
    """Takes the hash of every file and compares; a model that is well is recorded as verified."""
    folder = models_dir / name
    fields = complete_fields(folder)
    if fields is None:
        return [Checked(DESCRIPTION, "", f"{folder} is not a complete model")]
    expected = {DESCRIPTION: None} | {
        file: kept["sha256"] for file, kept in _recorded(folder).items()
    }
    expected |= {WEIGHTS: fields.get("gguf_sha256"), TOKENIZER: fields.get("tokenizer_sha256")}
    checked = [_checked(folder / file, sha256) for file, sha256 in sorted(expected.items())]
    if is_catalogued(name) and not is_installed(model_named(name), models_dir):
        checked.append(Checked(DESCRIPTION, "", "it is another file than the catalogue's"))
    if not any(each.problem for each in checked):
        with suppress(OSError):  # a folder that may only be read is verified all the same
            record_files(folder, {each.file: each.sha256 for each in checked})
    return checked


def record_more(folder: Path, hashes: dict[str, str]) -> None:
    """Writes down files that were made later; what is known of the others stays as it is."""
    if not _recorded(folder):  # an older version installed it, or a hash was found wrong
        verify(folder.name, folder.parent)
    record_files(folder, hashes, _recorded(folder))


def hold(folder: Path) -> None:
    """Marks the model as run by this process, until it ends, however it ends."""
    try:
        handle = os.open(folder / WEIGHTS, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise DescriptionUnreadable(f"{folder} is being removed") from error
    except OSError:
        return  # no file, which the engine will say better, or a file system without locks


def remove(name: str, models_dir: Path) -> None:
    """Takes the model away, with what an interrupted pull left; `InUse` while it is run or made."""
    if not incoming_folder(name, models_dir).exists() or not _is_safe(name):
        folder_of(name, models_dir)
    folder = models_dir / name
    models_dir.mkdir(parents=True, exist_ok=True)
    with locked(name, models_dir, lambda: _raise_in_use(f"another command works on {name}")):
        if (folder / WEIGHTS).exists():
            _let_go(folder)
        discard(folder)
        shutil.rmtree(incoming_folder(name, models_dir), ignore_errors=True)


def _let_go(folder: Path) -> None:
    with (folder / WEIGHTS).open("rb") as weights:
        try:
            fcntl.flock(weights, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InUse(f"an engine runs {folder.name}: end it first") from error


def _raise_in_use(what: str) -> NoReturn:
    raise InUse(what)


def _checked(file: Path, sha256: str | None) -> Checked:
    try:
        found = sha256_of(file)
        if sha256 is None and file.name == DESCRIPTION:  # of a version that did not record it
            return Checked(file.name, found)
        if found != sha256:
            return Checked(file.name, found, f"SHA-256 is {found}, recorded was {sha256}")
        if file.name == WEIGHTS:
            read_header(file)
    except (OSError, GgufRefused) as error:
        return Checked(file.name, "", str(error))
    return Checked(file.name, found)


def _recorded(folder: Path) -> dict[str, dict[str, Any]]:
    """What is written down of each file; nothing where it was not, or not by us."""
    try:
        files = json.loads((folder / FILES).read_text(encoding="utf-8"))
        return {
            file: {
                "sha256": str(files[file]["sha256"]),
                "bytes": int(files[file]["bytes"]),
                "mtime_ns": int(files[file]["mtime_ns"]),
            }
            for file in (*MADE, *(file for file in (GRAPH, GRAPH_WEIGHTS) if file in files))
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _is_safe(name: str) -> bool:
    try:
        return bool(safe_name(name))
    except InstallFailed:
        return False
