"""Text as Postgres can keep it: it takes every character but NUL, which models and people may say.

NUL is written as an escape that the same connection turns back; nothing is lost or refused.
"""

from __future__ import annotations

from typing import Any, Final

# A control character that text hardly ever holds stands for what follows it.
_ESCAPE: Final = b"\x1a"


async def keep_every_character(connection: Any) -> None:
    """Has the connection write and read all text in this way."""
    await connection.set_type_codec(
        "text", schema="pg_catalog", encoder=write_text, decoder=read_text, format="binary"
    )


def write_text(text: str) -> bytes:
    """The bytes to store."""
    raw = text.encode()
    if b"\x00" in raw or _ESCAPE in raw:
        return raw.replace(_ESCAPE, _ESCAPE + b"s").replace(b"\x00", _ESCAPE + b"0")
    return raw


def read_text(raw: bytes) -> str:
    """The inverse of `write_text`."""
    if _ESCAPE in raw:
        raw = raw.replace(_ESCAPE + b"0", b"\x00").replace(_ESCAPE + b"s", _ESCAPE)
    return raw.decode()
