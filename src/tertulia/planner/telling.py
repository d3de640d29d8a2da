"""What there is to say about a plan: what binds, how a figure follows, how far a guess matters.

Values and names; how they look is the terminal's business, or the page's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from tertulia.planner.book import BOOK
from tertulia.planner.plan import Plan
from tertulia.planner.sheet import POOLS, CantCompute, Figure, Given, Input, Sheet

Resource = Literal["compute", "bandwidth", "overhead", "kv", "slots"]

# What an operator knows least: each a quarter more and a fifth less.
UNSURE: Final = (
    "users",
    "peak_factor",
    "think_s",
    "answer_tokens",
    "history_tokens",
    "hit_share",
    "cached_share",
    "small_share",
    "utilisation",
    "large.efficiency",
    "large.price_per_hour",
)
LESS: Final = 0.8
MORE: Final = 1.25


@dataclass(frozen=True, slots=True)
class Binding:
    """What a pool's size follows from, and what bounds its batch."""

    resource: Resource
    says: str
    batch_says: str


@dataclass(frozen=True, slots=True)
class Told:
    """A name of the sheet: its value, where that is from, and what it is computed from."""

    name: str
    value: float | None
    unit: str
    says: str
    by: str
    formula: str | None
    uses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Swing:
    """What a plan would be if one input were a fifth less, or a quarter more."""

    name: str
    value: float
    less: float
    more: float


def binding(sheet: Sheet, pool: str) -> Binding:
    """Which resource a pool's number of replicas follows from."""

    def of(name: str) -> float:
        return sheet.value(f"{pool}.{name}")

    by_time = of("replicas_by_time")
    if of("replicas_by_memory") > max(by_time, of("replicas_by_slots")):
        return Binding("kv", "running answers fill the KV caches", _batch_says(sheet, pool))
    if of("replicas_by_slots") > by_time:
        return Binding("slots", "running answers take all slots", _batch_says(sheet, pool))
    read_s = of("read_s_weights") + of("batch") * of("read_s_per_sequence")
    overhead_s = of("a_s") + of("b_s") * of("batch")
    share = of("prefill_share")
    if share > 0.5:
        return Binding(
            "compute", f"{share:.0%} of the busy time reads prompts", _batch_says(sheet, pool)
        )
    writes = f"{1 - share:.0%} of the busy time writes answers, one token a step"
    if overhead_s > read_s:
        return Binding(
            "overhead", f"{writes}, and a step is mostly fixed cost", _batch_says(sheet, pool)
        )
    return Binding("bandwidth", f"{writes}, at the memory's speed", _batch_says(sheet, pool))


def _batch_says(sheet: Sheet, pool: str) -> str:
    batch = sheet.value(f"{pool}.batch")
    if f"{pool}.batch" in sheet.given:
        return f"the batch of {batch:.0f} was given"
    bounds = {
        "the KV cache's memory": sheet.value(f"{pool}.batch_by_memory"),
        "the target between tokens": sheet.value(f"{pool}.batch_by_gap"),
        "the engine's slots": sheet.value(f"{pool}.slots"),
    }
    return f"the batch is {batch:.0f} by {min(bounds, key=lambda name: bounds[name])}"


def told(sheet: Sheet, name: str) -> Told:
    """One name; KeyError if there is no such."""
    found = BOOK.find(name)
    if found is None:
        raise KeyError(name)
    given = sheet.given.get(name)
    is_computed = isinstance(found, Figure) and given is None
    by = given.by if given is not None else ("computed" if is_computed else "default")
    return Told(
        name=name,
        value=value_of(sheet, name),
        unit=found.unit,
        says=found.says,
        by=by,
        formula=found.text if isinstance(found, Figure) and is_computed else None,
        uses=tuple(sheet.uses(name)),
    )


def value_of(sheet: Sheet, name: str) -> float | None:
    """None is no value: never, or not computable for these inputs."""
    try:
        value = sheet.value(name)
    except CantCompute:
        return None
    return value if math.isfinite(value) else None


def swings(plan: Plan, figure: str) -> list[Swing]:
    """How a figure changes with what an operator knows least, the widest first."""
    found = []
    for name in UNSURE:
        value = plan.value(name)
        is_input = isinstance(BOOK.find(name), Input)
        if not value or not (is_input or name in plan.sheet.given):
            continue
        less, more = (
            plan.sheet.changed({name: Given(_bounded(name, value * times), "what if")})
            for times in (LESS, MORE)
        )
        at_less, at_more = value_of(less, figure), value_of(more, figure)
        if at_less is not None and at_more is not None and at_less != at_more:
            found.append(Swing(name, value, at_less, at_more))
    return sorted(found, key=lambda one: -abs(one.more - one.less))


def _bounded(name: str, value: float) -> float:
    found = BOOK.find(name)
    assert found is not None, name
    return min(1.0, value) if found.unit == "share" else value


def as_document(plan: Plan) -> dict[str, Any]:
    """The whole plan for a program. A value that there is none of is null."""
    pools = [pool for pool in POOLS if plan.value(f"{pool}.share")]
    return {
        "preset": None if plan.preset is None else plan.preset.name,
        "timing": {"is": plan.timing_is, "beside": plan.other_is, "notes": list(plan.notes)},
        "binds": {pool: _binds(plan.sheet, pool) for pool in pools},
        "figures": {
            name: _figure(told(plan.sheet, name), value_of(plan.other, name)) for name in quick()
        },
        "lines": list(_lines(plan)),
    }


def quick() -> list[str]:
    """Every name that is computed at once; what plays conversations is asked for by name."""
    slow = ("prefix_hits", "hits_simulated")
    return [
        name
        for name in BOOK.names()
        if not (isinstance(one := BOOK.find(name), Figure) and any(w in one.text for w in slow))
    ]


def _binds(sheet: Sheet, pool: str) -> dict[str, str]:
    found = binding(sheet, pool)
    return {"resource": found.resource, "says": found.says, "batch": found.batch_says}


def _figure(one: Told, beside: float | None) -> dict[str, Any]:
    return {
        "value": one.value,
        "unit": one.unit,
        "by": one.by,
        "formula": one.formula,
        "uses": list(one.uses),
        "beside": beside,
    }


def _lines(plan: Plan) -> Iterator[dict[str, Any]]:
    if plan.preset is None:
        return
    for line in plan.preset.lines:
        yield {
            "name": line.name,
            "printed": line.printed,
            "value": line.value(plan.sheet),
            "figure": line.figure,
            "times": line.times,
            "but": dict(line.but),
            "note": line.note,
        }
