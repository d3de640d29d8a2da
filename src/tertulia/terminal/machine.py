"""Looks at the machine: Python, libraries, cores, memory, disk. It changes nothing."""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import sys
from importlib import metadata
from pathlib import Path

from tertulia.terminal.findings import Finding

_PYTHON = (3, 11)
# RETURNING and the window functions that our statements use.
_SQLITE = (3, 35, 0)
_PACKAGES = ("cyllama", "tokenizers", "fastapi", "uvicorn", "uvloop", "httpx2", "alembic")
# Both engines, their caches and the lanes take about this much.
_MEMORY_BYTES = 2_000_000_000
# The larger model while it is being installed, and some room to live.
_DISK_BYTES = 2_000_000_000
# Below this, writes fail soon.
_DISK_LEAST_BYTES = 200_000_000
# SQLite's locks and flushes can't be relied on over these.
_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "ceph", "afs"})


def examine_machine(folder: Path) -> list[Finding]:
    """What every start needs; `folder` is where the data will be."""
    return [_python(), _packages(), _sqlite(), _cores(), _memory(), _disk(folder)]


def nearest(folder: Path) -> Path:
    """The folder itself, or the closest one above it that exists."""
    folder = folder.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def filesystem_of(folder: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """The kind of file system that holds `folder`; empty where the system does not say."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    place, best = str(nearest(folder).resolve()), ("", "")
    for line in lines:
        words = line.split()
        point = words[1].rstrip("/") if len(words) > 2 else None
        inside = point is not None and (place == point or place.startswith(f"{point}/"))
        if point is not None and inside and len(point) >= len(best[0]):
            best = (point, words[2])
    return best[1]


def is_remote(filesystem: str) -> bool:
    """Whether other machines share this kind of file system."""
    return filesystem in _REMOTE


def _python() -> Finding:
    text = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info < _PYTHON:
        return Finding("python", "fail", text, "install Python 3.11 or newer")
    return Finding("python", "ok", text)


def _packages() -> Finding:
    found, missing = [], []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        text = f"missing: {', '.join(missing)}"
        return Finding("packages", "fail", text, "install Tertulia again: scripts/setup run")
    return Finding("packages", "ok", ", ".join(found))


def _sqlite() -> Finding:
    if sqlite3.sqlite_version_info < _SQLITE:
        advice = "use a Python that is built with SQLite 3.35 or newer"
        return Finding("sqlite", "fail", sqlite3.sqlite_version, advice)
    return Finding("sqlite", "ok", sqlite3.sqlite_version)


def _cores() -> Finding:
    count = len(os.sched_getaffinity(0))
    if count < 2:
        advice = "answers will be slow; `--large off` keeps the core for one model"
        return Finding("cores", "warn", str(count), advice)
    return Finding("cores", "ok", str(count))


def _memory() -> Finding:
    free = _available_bytes()
    if free is None:
        return Finding("memory", "warn", "unknown: the system does not say")
    text = f"{free / 1e9:.1f} GB available"
    if free < _MEMORY_BYTES:
        advice = "close other programs, or start with `--large off`"
        return Finding("memory", "warn", text, advice)
    return Finding("memory", "ok", text)


def _available_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _disk(folder: Path) -> Finding:
    place = nearest(folder)
    free = shutil.disk_usage(place).free
    text = f"{free / 1e9:.1f} GB free at {place}"
    if free < _DISK_LEAST_BYTES:
        return Finding("disk", "fail", text, "free some space: new messages could not be kept")
    if free < _DISK_BYTES:
        advice = "installing the larger model needs up to 2 GB; free some, or use `--large off`"
        return Finding("disk", "warn", text, advice)
    return Finding("disk", "ok", text)
