"""What a published design is made of: its inputs, and each figure that it prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tertulia.planner.sheet import Given, Sheet

# A line's scale: what the document counts in.
PER_1000: Final = 1e3
PER_MILLION: Final = 1e6
GB: Final = 1e-9
TB: Final = 1e-12
MILLION: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Line:
    """A figure that a document prints, and how it follows.

    `times` brings our unit to the document's. `but` are the inputs that are different there, or
    figures that the document had rounded before it went on; `note` says which.
    """

    name: str
    printed: float | None
    figure: str
    times: float = 1.0
    but: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    def value(self, sheet: Sheet) -> float:
        """As it follows from the document's inputs."""
        return self.times * self.sheet(sheet).value(self.figure)

    def sheet(self, sheet: Sheet) -> Sheet:
        """The sheet that the figure is taken from."""
        if not self.but:
            return sheet
        return sheet.changed(
            {name: Given(one, f"line {self.name}") for name, one in self.but.items()}
        )


@dataclass(frozen=True, slots=True)
class Preset:
    """A published design of a chat service. `models` are those of its pools, by pool, with their
    precision and number of accelerators: for a timing that was measured."""

    name: str
    says: str
    values: Mapping[str, float]
    models: Mapping[str, tuple[str, str, int]]
    lines: tuple[Line, ...]
