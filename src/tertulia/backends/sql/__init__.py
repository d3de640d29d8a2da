"""Named SQL statements in files, read once: `-- name: claim_next`, its purpose, the statement.

Each database has a folder of its own, with one file a noun. Only statements live there; what is
decided about their answers does not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

_NAME = re.compile(r"^-- name: ([a-z_]+)$", re.MULTILINE)


@cache
def statements(dialect: str, noun: str) -> Mapping[str, str]:
    """The statements of `<dialect>/<noun>.sql`; ValueError for one without name or purpose."""
    text = (Path(__file__).parent / dialect / f"{noun}.sql").read_text(encoding="utf-8")
    found: dict[str, str] = {}
    _, *parts = _NAME.split(text)
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        purpose, _, statement = body.strip().partition("\n")
        if not purpose.startswith("-- ") or not statement.strip():
            raise ValueError(
                f"{dialect}/{noun}.sql: {name} needs a line of purpose and a statement"
            )
        if name in found:
            raise ValueError(f"{dialect}/{noun}.sql: {name} is there twice")
        found[name] = statement.strip().rstrip(";")
    if not found:
        raise ValueError(f"{dialect}/{noun}.sql holds no named statement")
    return MappingProxyType(found)
