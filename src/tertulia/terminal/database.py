"""Looks at the data folder and the database in it. It must never create or change one."""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

from tertulia.backends.migrations.sqlite import REVISIONS
from tertulia.terminal.findings import Finding
from tertulia.terminal.machine import filesystem_of, is_remote, nearest

# SQLite's own steps between two looks at the bound, and how many looks there may be: a check of
# about ten gigabytes.
_STEPS = 1_000_000
_LOOKS = 2_000
_FAULTS_SHOWN = 3


def examine_data(folder: Path, database: Path) -> list[Finding]:
    """Whether data can be kept there, and whether what is kept is whole."""
    findings = [_folder(folder)]
    if not database.exists():
        findings.append(Finding("database", "ok", f"not there yet: {database} comes at the start"))
        return findings
    findings.append(_mode(database))
    findings.append(_contents(database))
    return findings


def _folder(folder: Path) -> Finding:
    place = nearest(folder)
    if folder.exists() and not folder.is_dir():
        return Finding("data folder", "fail", f"{folder} is a file", "set data_dir to a folder")
    if not os.access(place, os.W_OK | os.X_OK):
        advice = "give this user the folder, or set data_dir to another"
        return Finding("data folder", "fail", f"{place} can't be written to", advice)
    filesystem = filesystem_of(folder)
    text = f"{folder.absolute()}{f' ({filesystem})' if filesystem else ''}"
    if is_remote(filesystem):
        advice = "put data_dir on a local disk: a shared one can lose what was acknowledged"
        return Finding("data folder", "fail", text, advice)
    return Finding("data folder", "ok", text)


def _mode(database: Path) -> Finding:
    mode = stat.S_IMODE(database.stat().st_mode)
    if mode & 0o077:
        advice = f"it holds what people wrote: chmod 600 {database}"
        return Finding("database mode", "warn", f"others may read it ({mode:o})", advice)
    return Finding("database mode", "ok", f"{mode:o}")


def _contents(database: Path) -> Finding:
    restore = "stop the server, keep this file, and restore a backup"
    # Without a write-ahead log nobody writes, and even a reader would leave new files behind.
    idle = not database.with_name(f"{database.name}-wal").exists()
    address = f"{database.absolute().as_uri()}?mode=ro{'&immutable=1' if idle else ''}"
    try:
        opened = sqlite3.connect(address, uri=True, timeout=5.0)
    except sqlite3.Error as error:
        return Finding("database", "fail", f"{database} can't be opened: {error}", restore)
    try:
        _bound(opened)
        return _examined(opened, database, restore)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            return Finding("database", "warn", "too large to be checked here; its head reads well")
        advice = "see whether this user may read it, and whether another program holds it"
        return Finding("database", "fail", f"{database} can't be read: {error}", advice)
    except sqlite3.DatabaseError as error:
        return Finding("database", "fail", f"{database} is damaged: {error}", restore)
    finally:
        opened.close()


def _examined(opened: sqlite3.Connection, database: Path, restore: str) -> Finding:
    named = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'"
    row = None
    if opened.execute(named).fetchone() is not None:
        row = opened.execute("SELECT version_num FROM alembic_version").fetchone()
    schema = str(row[0]) if row is not None else None
    faults = [fault[0] for fault in opened.execute(f"PRAGMA quick_check({_FAULTS_SHOWN})")]
    if faults != ["ok"]:
        return Finding("database", "fail", f"{database} is damaged: {'; '.join(faults)}", restore)
    text = f"{database}, {database.stat().st_size / 1e6:.1f} MB, schema {schema}, whole"
    if schema is None:
        if opened.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            return Finding("database", "ok", f"{database} is empty: its tables come at the start")
        advice = "another program made this file: set data_dir to a folder of its own"
        return Finding("database", "fail", text, advice)
    if schema not in REVISIONS:
        advice = "a newer version wrote it: start that one, or restore an older backup"
        return Finding("database", "fail", text, advice)
    if schema != REVISIONS[-1]:
        return Finding("database", "warn", text, "the next start brings it up to date: back it up")
    return Finding("database", "ok", text)


def _bound(opened: sqlite3.Connection) -> None:
    looks = 0

    def go_on() -> int:
        nonlocal looks
        looks += 1
        return int(looks > _LOOKS)

    opened.set_progress_handler(go_on, _STEPS)
