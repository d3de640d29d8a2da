"""A table of figures, and how it is written: for a person, for a program, for a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass

Value = str | int | float


@dataclass(frozen=True, slots=True)
class Rows:
    """Each row has a value for each column, in their order; units end the columns' names."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows)

    def column(self, name: str) -> list[Value]:
        """All values of one column, from the top."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def text(self) -> str:
        """In lines of equal columns."""
        shown = [self.columns, *(tuple(_shown(value) for value in row) for row in self.rows)]
        widths = [max(len(row[place]) for row in shown) for place in range(len(self.columns))]
        lines = ["  ".join(v.ljust(w) for v, w in zip(row, widths, strict=True)) for row in shown]
        return "\n".join([self.title, *(line.rstrip() for line in lines)]) + "\n"

    def json(self) -> str:
        """One object: the title, and an object for each row."""
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return json.dumps({"title": self.title, "rows": rows}, indent=1) + "\n"

    def csv(self) -> str:
        """With the columns' names in the first line."""
        written = io.StringIO()
        writer = csv.writer(written, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return written.getvalue()


def _shown(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else value
