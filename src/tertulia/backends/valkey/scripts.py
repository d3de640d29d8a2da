"""The Lua scripts of `lua/*.lua`, each one atomic step at the server."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent / "lua"


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the name under which a server knows it."""

    name: str
    body: bytes
    sha: str


def script(name: str) -> Script:
    """The script of `lua/<name>.lua`; ValueError for one that does not say what it is for."""
    body = (_FOLDER / f"{name}.lua").read_bytes()
    if not body.startswith(b"-- "):
        raise ValueError(f"{name}.lua needs a line that says what it is for")
    # The protocol names scripts by this hash; nothing is kept secret by it.
    return Script(name, body, hashlib.sha1(body, usedforsecurity=False).hexdigest())


SCRIPTS: Final = tuple(script(path.stem) for path in sorted(_FOLDER.glob("*.lua")))
