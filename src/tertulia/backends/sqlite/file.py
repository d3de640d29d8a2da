"""The database file: locked for one process, migrated, opened so that it keeps its promises."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
from pathlib import Path
from typing import Final

from tertulia.backends.migrations.sqlite import migrate
from tertulia.core.search import folded
from tertulia.ports import StoreFull, StoreUnavailable

# A reader of another program (a backup) may hold the file for a moment.
BUSY_MS: Final = 5_000
# After a checkpoint the write-ahead log shrinks to this, so that one burst doesn't keep the disk.
WAL_BYTES: Final = 64 * 1024 * 1024
_FULL_SYNC: Final = 2


class FileLock:
    """One process per database: a second one is refused and told who has it.

    The operating system drops the lock when its holder dies, however it dies.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise StoreUnavailable(
                f"{path.with_suffix('')} is in use by the process {holder}: "
                "stop that server first, or give this one a folder of its own"
            ) from None
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            pass  # a full disk: the lock holds all the same, only its holder can't be named

    def release(self) -> None:
        """Lets another process have the file; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1  # the number may be another file's by now


def prepare(path: Path) -> FileLock:
    """Locks the file for this process and brings it to this version's schema."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(path.name + ".lock"))
    try:
        # People's words: for the owner of the process alone. SQLite's other files copy the mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        migrate(path)
    except sqlite3.DatabaseError as error:
        lock.release()
        raise StoreUnavailable(f"{path} can't be opened as a database: {error}") from error
    except BaseException:
        lock.release()
        raise
    return lock


def open_writer(path: Path) -> sqlite3.Connection:
    """The only writing connection. It is made here and then used by one thread."""
    database = _connect(path, "rw")
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    # What was deleted is overwritten, not merely unlinked.
    database.execute("PRAGMA secure_delete = ON")
    database.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")
    _assert_durable(database)
    return database


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that can't write."""
    database = _connect(path, "ro")
    database.execute("PRAGMA query_only = ON")
    database.create_function("holds", 2, _holds, deterministic=True)
    return database


def store_error(error: BaseException) -> BaseException:
    """What a port promises to raise instead of the driver's own exception."""
    if not isinstance(error, sqlite3.OperationalError):
        return error
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreFull("the disk is full: free some space; what was acknowledged is kept")
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreUnavailable("another program holds the database: try again in a moment")
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        return StoreUnavailable(f"the database file can't be used: {error}")
    return error


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    database = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,  # transactions are begun and ended in plain sight
        check_same_thread=False,
        cached_statements=256,
    )
    database.row_factory = sqlite3.Row
    database.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
    database.execute("PRAGMA foreign_keys = ON")
    return database


def _assert_durable(database: sqlite3.Connection) -> None:
    found = {
        name: database.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "foreign_keys")
    }
    if found != {"journal_mode": "wal", "synchronous": _FULL_SYNC, "foreign_keys": 1}:
        raise StoreUnavailable(
            f"the database can't promise to keep what it acknowledges ({found}): "
            "put its file on a local disk"
        )


def _holds(text: str | None, word: str) -> bool:
    """Whether a text holds a folded word."""
    return text is not None and word in folded(text)
