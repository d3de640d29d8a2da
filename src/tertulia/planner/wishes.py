"""Reads what an operator asks for: a table of TOML, or flags. Refuses nonsense in a sentence.

The result is what a sheet is given, each value with who gave it. It must not reckon: what follows
from the inputs is the sheet's business.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from tertulia.planner.book import BOOK
from tertulia.planner.catalogue import ACCELERATORS, MODELS, PRECISIONS
from tertulia.planner.measured import MEASURED, ROOFLINE
from tertulia.planner.sheet import POOLS, Figure, Given, Input

HOURS: Final = 24
SIMULATED: Final = "simulated"
# What takes words, of the fleet and of a pool; all others take numbers.
FLEET_WORDS: Final[Mapping[str, Iterable[str]]] = {"timing": (MEASURED, ROOFLINE)}
POOL_WORDS: Final[Mapping[str, Iterable[str]]] = {
    "model": MODELS,
    "accelerator": ACCELERATORS,
    "precision": PRECISIONS,
}
_CURVES: Final = ("hourly", "answers", "plans")
# Within what a pool's timing was measured, and the figures that have to stay within it.
MEASURED_RANGES: Final = {
    "measured_batch": "batch",
    "measured_context_tokens": "context_tokens",
    "measured_prompt_tokens": "uncached_tokens",
}
_ABOUT_ONE: Final = 1e-3
_WHOLE_UNITS: Final = ("accelerators", "replicas", "layers", "heads")
_EXAMPLES: Final = {"accelerator": "bandwidth", "model": "params"}


class Nonsense(ValueError):
    """What was asked for makes no sense. The text is one sentence, for the operator."""


@dataclass(slots=True)
class Read:
    """What was asked for, by full name: numbers, words, and within what a timing was measured."""

    numbers: dict[str, Given] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    may_extrapolate: bool = False


def read_wish(document: Mapping[str, Any], by: str, into: Read) -> None:
    """Adds a table to what was read before it. Raises `Nonsense` at the first that is none."""
    for name, value in document.items():
        if name in POOLS:
            if not isinstance(value, Mapping):
                raise Nonsense(f"`{name}` is a table: write [{name}] and its values below it.")
            for bare, one in value.items():
                _take(f"{name}.{bare}", one, by, into)
        elif name in _CURVES:
            into.numbers |= {each: Given(one, by) for each, one in _curve(name, value).items()}
        elif name == "extrapolate":
            if not isinstance(value, bool):
                raise Nonsense("`extrapolate` is true or false.")
            into.may_extrapolate = value
        else:
            _take(name, value, by, into)


def _take(name: str, value: object, by: str, into: Read) -> None:
    pool, _, bare = name.rpartition(".")
    words_of = POOL_WORDS if pool in POOLS else FLEET_WORDS
    if bare in words_of:
        into.words[name] = _word(name, value, list(words_of[bare]))
    elif pool in POOLS and bare in MEASURED_RANGES:
        into.ranges[f"{pool}.{MEASURED_RANGES[bare]}"] = _range(name, value)
    elif name == "hit_share" and value == SIMULATED:
        into.words[name] = SIMULATED
    else:
        into.numbers[name] = Given(_number(name, value), by)


def _range(name: str, value: object) -> tuple[float, float]:
    match value:
        case [int() | float() as low, int() | float() as high] if 0 < low <= high < math.inf:
            return float(low), float(high)
    raise Nonsense(f"`{name}` is two numbers: the least and the most that were measured.")


def _word(name: str, value: object, known: list[str]) -> str:
    if isinstance(value, str) and value in known:
        return value
    example = _EXAMPLES.get(name.rpartition(".")[2])
    hint = f"; for another one give its figures: `{example}` and so on" if example else ""
    raise Nonsense(f"`{name}` is {value!r}, but there are {', '.join(known)}{hint}.")


def _number(name: str, value: object) -> float:
    found = BOOK.find(name)
    if found is None:
        close = get_close_matches(name, BOOK.names(), n=1)
        hint = f"; did you mean `{close[0]}`?" if close else "; `tertulia plan --names` lists all."
        raise Nonsense(f"There is no `{name}`{hint}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Nonsense(f"`{name}` is {value!r}, which is no number.")
    low, high = _bounds(found)
    if math.isnan(value) or not low <= value <= high:
        raise Nonsense(
            f"`{name}` is {value:g}, but has to be between {low:g} and {high:g}"
            f"{' ' + found.unit if found.unit else ''}. ({found.says})"
        )
    if isinstance(found, Input) and found.unit in _WHOLE_UNITS and value != int(value):
        raise Nonsense(f"`{name}` is {value:g}, but only whole {found.unit} make sense.")
    return float(value)


def _bounds(found: Input | Figure) -> tuple[float, float]:
    if isinstance(found, Input):
        return found.low, found.high
    return 0.0, (1.0 if found.unit == "share" else 1e18)


def _curve(name: str, value: object) -> dict[str, float]:
    """Inputs from something with more than one number."""
    if name == "plans":
        return _plan_mix(value)
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise Nonsense(f"`{name}` is a list of numbers.")
    if name == "hourly":
        return _day(value)
    return _answers(value)


def _day(value: Sequence[object]) -> dict[str, float]:
    hours = [one for one in value if isinstance(one, int | float) and one >= 0]
    if len(value) != HOURS or len(hours) != HOURS or not any(hours):
        raise Nonsense("`hourly` has 24 numbers, 0 or more: how the turns spread over a day.")
    return {"peak_factor": max(hours) / (sum(hours) / HOURS)}


def _answers(value: Sequence[object]) -> dict[str, float]:
    pairs = [
        (float(one[0]), float(one[1]))
        for one in value
        if isinstance(one, Sequence)
        and len(one) == 2
        and all(isinstance(part, int | float) and part >= 0 for part in one)
    ]
    total = sum(share for _, share in pairs)
    if len(pairs) != len(value) or not total > 0:
        raise Nonsense("`answers` are pairs of tokens and share, as [[100, 0.5], [700, 0.5]].")
    mean = sum(tokens * share for tokens, share in pairs) / total
    return {"answer_tokens": _number("answer_tokens", mean)}


def _plan_mix(value: object) -> dict[str, float]:
    """The shares of turns by plan: on `free` the ladder may act."""
    shares = value if isinstance(value, Mapping) else {}
    numbers = [one for one in shares.values() if isinstance(one, int | float) and 0 <= one <= 1]
    if len(numbers) != len(shares) or abs(sum(numbers) - 1) > _ABOUT_ONE:
        raise Nonsense("[plans] has the share of turns of each plan, 1 together: free = 0.6 …")
    return {"free_share": float(shares.get("free", 0.0))}
