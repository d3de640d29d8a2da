"""A table of figures: what caches and placements are compared by."""

from __future__ import annotations

from dataclasses import dataclass

Value = str | int | float


@dataclass(frozen=True, slots=True)
class Rows:
    """Each row has a value for each column, in their order; units end the columns' names."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows)

    def column(self, name: str) -> list[Value]:
        """All values of one column, from the top."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def values(self) -> list[dict[str, Value]]:
        """Each row for a program."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def texts(self) -> list[dict[str, str]]:
        """Each row for a person."""
        names = [name.replace("_", " ") for name in self.columns]
        return [dict(zip(names, map(_shown, row), strict=True)) for row in self.rows]


def _shown(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else value
