"""Puts a model into the models' folder in one step, by one process at a time.

It must never leave a half-made model under its final name, whenever the process is killed.
"""

import errno
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

NAME_CHARS = 32  # a list of models stays readable at 80 columns
SPARE_BYTES = 200_000_000  # for the tokenizer and the file system itself
ROOM_ADVICE = "free some, or set models_dir in the settings to a folder on another disk"
_SAFE = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")


class InstallFailed(RuntimeError):
    """The model is not installed; the message says why and what helps."""


@dataclass(frozen=True)
class Progress:
    """How far one stage of an install is; `total` is 0 where it is unknown."""

    stage: Literal["wait", "download", "join", "verify", "requantise", "tokenizer", "graph", "done"]
    done: int
    total: int


Report = Callable[[Progress], None]


def safe_name(name: str) -> str:
    """The name itself if it is one for a folder on any system; else `InstallFailed`."""
    if len(name) > NAME_CHARS or not _SAFE.fullmatch(name):
        raise InstallFailed(
            f"{name!r} can't be a model's name: small letters and digits, joined by single "
            f". _ or -, at most {NAME_CHARS}"
        )
    return name


def placed(
    name: str,
    models_dir: Path,
    report: Report,
    is_done: Callable[[], bool],
    make: Callable[[Path], Path],
) -> Path:
    """Makes `<models_dir>/<name>` with `make(incoming)`, unless `is_done`; returns that folder.

    Two processes may call it at once: the second waits for the first and finds its work done. What
    is in `incoming` when `make` fails, or the process ends, is there again at the next call.
    """
    target = models_dir / safe_name(name)
    if is_done():
        return target
    try:
        models_dir.mkdir(parents=True, exist_ok=True)
        with locked(name, models_dir, lambda: report(Progress("wait", 0, 1))):
            if is_done():
                return target
            incoming = incoming_folder(name, models_dir)
            incoming.mkdir(exist_ok=True)
            ready = make(incoming)
            _sync_folder(ready)
            discard(target)  # of another version, or damaged
            ready.rename(target)
            sync(models_dir)
            shutil.rmtree(incoming)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise InstallFailed(f"the disk of {models_dir} is full: {ROOM_ADVICE}") from error
        raise InstallFailed(f"{models_dir}: {error}") from error
    report(Progress("done", 1, 1))
    return target


def incoming_folder(name: str, models_dir: Path) -> Path:
    """Where a model is made before it gets its name. What is fetched stays there until then."""
    return models_dir / f".incoming-{name}"


def check_room(title: str, need_bytes: int, incoming: Path) -> None:
    """`InstallFailed` if the disk has no room for `need_bytes`, less what is there already."""
    have = sum(file.stat().st_size for file in incoming.rglob("*") if file.is_file())
    need = need_bytes + SPARE_BYTES - have
    free = shutil.disk_usage(incoming).free
    if free < need:
        raise InstallFailed(
            f"{title} needs {need // 1_000_000} MB of disk while it is installed, "
            f"and {incoming.parent} has {free // 1_000_000} MB: {ROOM_ADVICE}"
        )


def discard(folder: Path) -> None:
    """Removes a model's folder; the name is free at once, so a kill leaves no half of it there."""
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        aside = folder.with_name(f".removed-{folder.name}")
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
        shutil.rmtree(aside)


def sha256_of(path: Path) -> str:
    """The hash of a whole file, in hexadecimal; takes about a second for each gigabyte."""
    with path.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


@contextmanager
def locked(name: str, models_dir: Path, waits: Callable[[], None]) -> Iterator[None]:
    """Holds a model's lock, which ends with the process; `waits` is called if another has it."""
    with (models_dir / f".{name}.lock").open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _sync_folder(folder: Path) -> None:
    for path in (*folder.iterdir(), folder):
        sync(path)


def sync(path: Path) -> None:
    """Returns when a file's bytes, or a folder's names, would outlive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)  # the rename must not outlive the bytes in a power cut
    finally:
        os.close(handle)
