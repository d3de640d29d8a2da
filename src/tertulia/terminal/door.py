"""Which server a chat talks to, and with which key.

The key of this machine must never go to another one.
"""

from __future__ import annotations

import os
from pathlib import Path

from tertulia.config import Settings
from tertulia.terminal.client import Server, is_loopback

# What a server listens on and what a client on the same machine connects to.
_LOCAL = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # compared, not bound
_KEY_CHARS = 200


class NoKey(Exception):
    """There is no key for this server; the message says how to give one."""


def server_for(
    settings: Settings, url: str | None, key_file: Path | None, environment_key: str | None
) -> Server:
    """The server at `url`, or this machine's. A key file wins over the environment's key."""
    address = url or local_address(settings)
    if not address.startswith(("http://", "https://")):
        raise NoKey(f"{address} is no address: it must begin with http:// or https://")
    if key_file is not None:
        return Server(address, _read(key_file))
    if environment_key:
        return Server(address, _clean(environment_key, "TERTULIA_API_KEY"))
    if not is_loopback(address):
        raise NoKey(f"For {address} give a key: TERTULIA_API_KEY or --key-file.")
    if not settings.key_file.exists():
        raise NoKey(
            f"There is no key for {address} in {settings.data_dir.absolute()}. Start the server "
            "with `tertulia serve`, run this where it was started, or give a key: "
            "TERTULIA_API_KEY or --key-file."
        )
    return Server(address, _read(settings.key_file))


def local_address(settings: Settings) -> str:
    """Where this machine's server is: as a running one says, else by the settings."""
    if settings.address_file.is_file():
        return settings.address_file.read_text(encoding="utf-8").strip()
    host = _LOCAL.get(settings.server.host, settings.server.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.server.port}"


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return _clean(file.read(_KEY_CHARS + 2), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise NoKey(f"The key file {path} can't be read: {_why(error)}") from None


def _clean(key: str, where: str) -> str:
    key = key.strip()
    if not key or len(key) > _KEY_CHARS or not key.isascii() or not key.isprintable():
        raise NoKey(f"{where} holds no API key.")
    return key


def _why(error: OSError | UnicodeDecodeError) -> str:
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else "it is not text"
