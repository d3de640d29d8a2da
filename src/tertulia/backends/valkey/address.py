"""Where a Valkey server is and how to be let in, from a URL. It never shows the password."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import unquote, urlsplit

PORT: Final = 6379
_SCHEMES: Final = {"valkey": False, "redis": False, "valkeys": True, "rediss": True}


@dataclass(frozen=True, slots=True)
class Address:
    """One server. `database` is 0 in a cluster, which has no other."""

    host: str
    port: int = PORT
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def beside(self, host: str, port: int) -> Address:
        """Another server of the same cluster: the same credentials let us in."""
        return replace(self, host=host or self.host, port=port)


def address_of(url: str) -> Address:
    """The address that a URL names, as `valkeys://user:password@host:6379`; ValueError if it names
    none. `valkeys` and `rediss` speak TLS, and trust what the machine trusts."""
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise ValueError("a Valkey URL looks like valkey://host:6379 or valkeys://host:6379")
    try:
        database = int(parts.path.strip("/") or 0)
        port = parts.port or PORT
    except ValueError:
        raise ValueError("the port and the database of a Valkey URL are numbers") from None
    return Address(
        host=parts.hostname,
        port=port,
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        database=database,
        tls=ssl.create_default_context() if _SCHEMES[parts.scheme] else None,
    )
