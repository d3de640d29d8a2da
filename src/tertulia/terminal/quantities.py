"""Numbers with their units, as people read them."""

from __future__ import annotations

import math
from typing import Final

_BYTES: Final = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B"))
_SECONDS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (0.0, "ns"))
_LARGEST_PLAIN: Final = 1e15


def shown(value: float, unit: str) -> str:
    """A value with its unit: 0.0127 s is 12.7 ms, 3.2e11 B is 320 GB, a share is a percentage."""
    if math.isinf(value):
        return "never"
    if unit == "share":
        return f"{100 * value:.3g} %"
    if unit == "s":
        return _seconds(value)
    if unit.startswith("$"):
        return _money(value, unit)
    base, _, per = unit.partition("/")
    if base == "B":
        size, word = next(((s, w) for s, w in _BYTES if abs(value) >= s), _BYTES[-1])
        return f"{value / size:.4g} {word}{'/' + per if per else ''}"
    return f"{_plain(value)} {unit}".rstrip()


def _seconds(value: float) -> str:
    size, word = next((s, w) for s, w in _SECONDS if abs(value) >= s)
    return f"{value / (size or 1e-9):,.4g} {word}" if value else "0 s"


def _money(value: float, unit: str) -> str:
    amount = f"${value:,.0f}" if abs(value) >= 1_000 else f"${value:.4g}"
    return f"{amount}{unit[1:]}"


def _plain(value: float) -> str:
    if abs(value) >= _LARGEST_PLAIN:
        return f"{value:.4g}"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
