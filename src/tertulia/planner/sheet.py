"""A plan as a sheet of named figures, each computed from others by a formula that can be shown.

Any name may be given: an input, or a figure that somebody has measured. What is given is not
computed. It must never know what the figures mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tertulia.planner.formula import Formula, formula

LARGE: Final = "large"
SMALL: Final = "small"
POOLS: Final = (LARGE, SMALL)
# Deeper than any chain of figures: a ring among them is our mistake, and ends with a sentence.
_DEEPEST: Final = 60


class CantCompute(Exception):
    """A figure has no value for these inputs. The text says which and why, in one sentence."""


@dataclass(frozen=True, slots=True)
class Input:
    """Something the operator knows. `low` and `high` are what makes sense, ends included."""

    name: str
    unit: str
    default: float
    low: float
    high: float
    says: str


@dataclass(frozen=True, slots=True)
class Figure:
    """Something that follows. In a pool's formula a bare name is the pool's own, if it has it."""

    name: str
    unit: str
    text: str
    says: str

    @property
    def formula(self) -> Formula:
        """The text, read."""
        return formula(self.text)


@dataclass(frozen=True, slots=True)
class Given:
    """A value that somebody gave, and who: a flag, a file, a preset, a table."""

    value: float
    by: str


@dataclass(frozen=True, slots=True)
class Book:
    """All inputs and figures there are: of the fleet, and of each pool."""

    fleet_inputs: Mapping[str, Input]
    pool_inputs: Mapping[str, Input]
    fleet: Mapping[str, Figure]
    pool: Mapping[str, Figure]

    def names(self) -> list[str]:
        """Every name of a sheet: `users`, `large.step_s`."""
        found = [*self.fleet_inputs, *self.fleet]
        for pool in POOLS:
            found += [f"{pool}.{name}" for name in (*self.pool_inputs, *self.pool)]
        return found

    def find(self, name: str) -> Input | Figure | None:
        """What a full name stands for."""
        pool, _, bare = name.rpartition(".")
        if not pool:
            return self.fleet_inputs.get(name) or self.fleet.get(name)
        if pool not in POOLS:
            return None
        return self.pool_inputs.get(bare) or self.pool.get(bare) or self.fleet.get(name)

    def full(self, name: str, pool: str) -> str:
        """The full name that a formula of this pool (or of the fleet, "") means by `name`."""
        own = f"{pool}.{name}"
        is_own = name in self.pool_inputs or name in self.pool or own in self.fleet
        return own if pool and is_own else name


class Sheet:
    """The figures that follow from what is given; each is computed once, when it is asked for.

    Invariant: `_known` has only values that were given or that follow from those.
    """

    def __init__(self, book: Book, given: Mapping[str, Given]) -> None:
        self._book = book
        self.given = dict(given)
        self._known: dict[str, float] = {name: one.value for name, one in given.items()}
        self._depth = 0

    def value(self, name: str) -> float:
        """The value of a full name; `CantCompute` if it has none, KeyError if there is no such."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._computed(name)
        return known

    def uses(self, name: str) -> list[str]:
        """The full names in a figure's formula; none for what was given."""
        found = self._book.find(name)
        if name in self.given or not isinstance(found, Figure):
            return []
        pool = name.rpartition(".")[0]
        return [self._book.full(each, pool) for each in found.formula.names]

    def changed(self, given: Mapping[str, Given]) -> Sheet:
        """The same with more given: a what-if."""
        return Sheet(self._book, {**self.given, **given})

    def _computed(self, name: str) -> float:
        found = self._book.find(name)
        if found is None:
            raise KeyError(name)
        if isinstance(found, Input):
            return found.default
        pool = name.rpartition(".")[0]
        book, value = self._book, self.value
        self._depth += 1
        try:
            assert self._depth < _DEEPEST, f"{name} is computed from itself"
            computed = found.formula.compute(lambda each: value(book.full(each, pool)))
        except (ZeroDivisionError, OverflowError, ValueError) as error:
            raise CantCompute(_why(name, found, error)) from error
        finally:
            self._depth -= 1
        if math.isnan(computed):
            raise CantCompute(f"{name} has no value for these inputs: {found.text}.")
        return computed


def _why(name: str, found: Figure, error: Exception) -> str:
    if isinstance(error, ValueError):
        return str(error)
    what = "a part of it is 0" if isinstance(error, ZeroDivisionError) else "it is too large"
    return f"{name} can't be computed, as {what}: {found.text}."
