"""What a port promises to raise instead of the driver's own exceptions."""

from __future__ import annotations

from typing import Final

import asyncpg

from tertulia.ports import StoreFull, StoreUnavailable

# All that the driver raises when the server says no, or when the connection is not what it was.
BROKEN: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
_DISK_FULL: Final = "53100"
# By class of the SQLSTATE: the connection broke, the server lacks something, somebody ended it, its
# machine failed; refused at the door (28, 3D); a transaction that met another and was ended (40).
_AWAY: Final = frozenset(("08", "53", "57", "58", "28", "3D", "40"))
# A lock not given in time; a standby, which can't write; a transaction that was left lying.
_AWAY_TOO: Final = frozenset(("55P03", "25006", "25P02", "25P03", "25P04"))


def store_error(error: BaseException) -> BaseException:
    """StoreFull, StoreUnavailable, or the error itself if it is a mistake of ours."""
    state: str = getattr(error, "sqlstate", None) or ""  # only the server's own have one
    if state == _DISK_FULL:
        return StoreFull("the database's disk is full: free some space; nothing was changed")
    if state[:2] in _AWAY or state in _AWAY_TOO:
        return StoreUnavailable(f"the database can't do it now: {error}")
    if isinstance(error, TimeoutError):
        return StoreUnavailable("the database did not answer in time")
    if isinstance(error, OSError):
        return StoreUnavailable(f"the database can't be reached: {error}")
    if isinstance(error, asyncpg.InternalClientError) or (
        isinstance(error, asyncpg.InterfaceError) and not isinstance(error, ValueError)
    ):
        return StoreUnavailable(f"the connection to the database is gone: {error}")
    return error
