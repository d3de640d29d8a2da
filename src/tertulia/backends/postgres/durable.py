"""Whether a database keeps what it acknowledges: asked once, before anything is entrusted to it."""

from __future__ import annotations

from typing import Any, Final

from tertulia.ports import StoreUnavailable

_NEEDED: Final = {
    # `remote_apply` waits for even more than `on`; all others may forget what they acknowledged.
    "synchronous_commit": ("on", "remote_apply"),
    "fsync": ("on",),
    "server_encoding": ("UTF8",),
    # A standby can't write.
    "in_hot_standby": ("off",),
}
# The first that tells its partitions apart while it changes rows, and that knows of standbys.
_OLDEST: Final = 14


async def demand_durable(connection: Any) -> None:
    """StoreUnavailable that names the setting which breaks a promise."""
    version = connection.get_server_version()
    if version.major < _OLDEST:
        raise StoreUnavailable(
            f"Postgres {version.major} is too old: {_OLDEST} is the oldest that will do"
        )
    for name, allowed in _NEEDED.items():
        found = await connection.fetchval(f"SHOW {name}")
        if found not in allowed:
            raise StoreUnavailable(
                f"the database has {name} = {found}, and without {allowed[0]} it can't keep what "
                "it acknowledges: change it for this database or its user"
            )
