"""Sockets to listen on: the gateway's, an engine's, or one that only shows whether a port is free;
and which addresses are those of the machine itself.

An inherited socket outlives a crash of the process that listens, so that clients wait a moment
instead of being turned away.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

# Connections that may wait while a process starts or is started again.
BACKLOG = 1024
# The lanes find the gateway's socket here: it stays open while they are started again.
LISTEN_VARIABLE = "TERTULIA_LISTEN_FD"
# Below the ports that Linux (from 32768) and others give to outgoing connections: one of those
# would take a port of ours between look and bind, or while its owner is started again.
_OWN_PORTS: Final = range(20_000, 32_768)
_PORTS_TRIED: Final = 100


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the gateway takes connections."""

    socket: socket.socket
    address: str


def listen(host: str, port: int) -> Listening:
    """Takes connections from now on; OSError when the address is taken or not ours."""
    bound = bind(host, port)
    try:
        bound.listen(BACKLOG)
    except OSError:
        bound.close()
        raise
    return listening_on(bound)


def listening_on(bound: socket.socket) -> Listening:
    """A socket that is bound already, such as one that was inherited."""
    host, port = bound.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}"
    assert urlsplit(address).port == port
    return Listening(bound, address)


def bind(host: str, port: int) -> socket.socket:
    """A TCP socket at this address, which takes no connections yet; port 0 is any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
    except OSError:
        made.close()
        raise
    return made


def free_port() -> int:
    """A port of this machine that nobody listens on now; OSError if none is found."""
    for _ in range(_PORTS_TRIED):
        try:
            with bind("127.0.0.1", secrets.choice(_OWN_PORTS)) as probe:
                port: int = probe.getsockname()[1]
                return port
        except OSError:
            continue
    raise OSError(f"no free port was found in {_PORTS_TRIED} tries")


def is_loopback(url: str) -> bool:
    """Whether this names the machine itself."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
