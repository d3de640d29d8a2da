"""Statements with named values: `:owner` in the file is `$1` on the wire."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tertulia.backends.sql import statements

_VALUE = re.compile(r"(?<![:\w]):([a-z_]+)")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement and the names of its values, in their order on the wire."""

    text: str
    names: tuple[str, ...]

    def arguments(self, values: Mapping[str, Any]) -> list[Any]:
        """The values in their order; KeyError for one that is missing."""
        return [values[name] for name in self.names]


def postgres_statements(noun: str) -> Mapping[str, Statement]:
    """The statements of `sql/postgres/<noun>.sql` by name."""
    found = statements("postgres", noun)
    return MappingProxyType({name: _numbered(text) for name, text in found.items()})


def _numbered(text: str) -> Statement:
    names = tuple(dict.fromkeys(_VALUE.findall(text)))
    numbers = {name: n for n, name in enumerate(names, 1)}
    return Statement(_VALUE.sub(lambda found: f"${numbers[found[1]]}", text), names)
