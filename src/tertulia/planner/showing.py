"""What a page with sliders shows of a plan: its inputs, figures, what binds, and curves.

A document of plain values; whoever shows it computes nothing of it again. It is made anew at every
move of a slider, so that it may ask for nothing that plays conversations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tertulia.planner.book import BOOK
from tertulia.planner.catalogue import ACCELERATORS, MODELS, PRECISIONS
from tertulia.planner.plan import DEFAULTS, Plan, Wish, plan_for
from tertulia.planner.sheet import POOLS, Given, Input
from tertulia.planner.telling import binding, told, value_of
from tertulia.planner.wishes import POOL_WORDS, Nonsense


@dataclass(frozen=True, slots=True)
class Slider:
    """An input that is moved by hand, within what people move it to: less than what makes sense."""

    name: str
    low: float
    high: float
    is_logarithmic: bool = False


@dataclass(frozen=True, slots=True)
class Curve:
    """How figures change with one input."""

    over: str
    figures: tuple[str, ...]


SLIDERS: Final = (
    Slider("users", 100, 1e8, is_logarithmic=True),
    Slider("turns_per_user", 1, 100, is_logarithmic=True),
    Slider("answer_tokens", 50, 4_000, is_logarithmic=True),
    Slider("hit_share", 0, 1),
    Slider("small_share", 0, 1),
    Slider("free_share", 0, 1),
    Slider("spare_share", 0, 1),
)
CURVES: Final = (
    Curve("users", ("cost_per_1000", "api_cost_per_1000")),
    Curve("hit_share", ("accelerators", "busy_accelerators")),
    Curve("small_share", ("accelerators", "busy_accelerators")),
)
FLEET_FIGURES: Final = (
    "peak_turns_per_s",
    "streams",
    "replicas",
    "accelerators",
    "busy_accelerators",
    "busy_cold_accelerators",
    "paid_alone_at",
    "idle_bytes",
    "host_bytes_per_server",
    "stored_bytes_kept",
    "gateways",
    "cells",
    "regions",
    "accelerator_cost_per_day",
    "scaled_cost_per_day",
    "cost_per_1000",
    "cost_target",
    "cost_per_million_tokens",
    "cost_per_million_answer_tokens",
    "api_cost_per_1000",
    "crossover_users",
)
POOL_FIGURES: Final = (
    "share",
    "replicas",
    "accelerators",
    "accelerators_per_replica",
    "price_per_hour",
    "batch",
    "step_s",
    "gap_with_chunk_s",
    "first_token_s",
    "largest_chunk_tokens",
    "turns_per_s",
    "full_turns_per_s",
)
# Enough for a smooth line; each point is a sheet of its own, half a millisecond.
_POINTS: Final = 17


def planned(values: Mapping[str, float], words: Mapping[str, str]) -> Plan:
    """The plan for what was asked by name; `Nonsense` for what makes none."""
    _demand_names(values, words)
    document: dict[str, Any] = {}
    for name, value in {**values, **words}.items():
        pool, _, bare = name.rpartition(".")
        if pool in POOLS:
            document.setdefault(pool, {})[bare] = value
        else:
            document[name] = value
    return plan_for([Wish(document, "the page")])


def shown(plan: Plan) -> dict[str, Any]:
    """All of it. A value that there is none of is None."""
    pools = [pool for pool in POOLS if plan.value(f"{pool}.share")]
    return {
        "sliders": [_slider(plan, one) for one in SLIDERS],
        "choices": _choices(),
        "figures": {name: _figure(plan, name) for name in _names(pools)},
        "binds": {pool: binding(plan.sheet, pool).resource for pool in pools},
        "curves": [_curve(plan, one) for one in CURVES],
        "timing": plan.timing_is,
        "beside": {"timing": plan.other_is, "accelerators": value_of(plan.other, "accelerators")},
        "notes": [note for note in plan.notes if note.partition(":")[0] in pools],
    }


def _demand_names(values: Mapping[str, float], words: Mapping[str, str]) -> None:
    """What is no name of ours is refused without being repeated. Words are for hardware alone:
    whatever else takes a word makes a plan slow."""
    if any(BOOK.find(name) is None for name in values):
        raise Nonsense(
            "A value is of none of the planner's names; `tertulia plan --names` has all."
        )
    for name, word in words.items():
        pool, _, bare = name.rpartition(".")
        if pool not in POOLS or bare not in POOL_WORDS:
            raise Nonsense("Words are for the model, accelerator and precision of a pool.")
        known = list(POOL_WORDS[bare])
        if word not in known:
            raise Nonsense(f"`{name}` is none of {', '.join(known)}.")


def _names(pools: Sequence[str]) -> Iterator[str]:
    yield from FLEET_FIGURES
    for pool in pools:
        yield from (f"{pool}.{name}" for name in POOL_FIGURES)


def _slider(plan: Plan, slider: Slider) -> dict[str, Any]:
    found = BOOK.find(slider.name)
    assert isinstance(found, Input), slider
    return {
        "name": slider.name,
        "value": plan.value(slider.name),
        "unit": found.unit,
        "low": slider.low,
        "high": slider.high,
        "logarithmic": slider.is_logarithmic,
    }


def _choices() -> dict[str, list[str]]:
    """What may be chosen for each pool, by name; first what a plan has where nothing was said."""
    lists: dict[str, Iterable[str]] = {
        "model": MODELS,
        "accelerator": ACCELERATORS,
        "precision": PRECISIONS,
    }
    return {
        f"{pool}.{bare}": sorted(names, key=lambda one: one != DEFAULTS[pool][bare])
        for pool in POOLS
        for bare, names in lists.items()
    }


def _figure(plan: Plan, name: str) -> dict[str, Any]:
    one = told(plan.sheet, name)
    return {"value": one.value, "unit": one.unit, "formula": one.formula, "by": one.by}


def _curve(plan: Plan, curve: Curve) -> dict[str, Any]:
    slider = next(one for one in SLIDERS if one.name == curve.over)
    return {
        "over": curve.over,
        "figures": list(curve.figures),
        "points": [[at, *_values_at(plan, curve, at)] for at in _spread(slider)],
    }


def _values_at(plan: Plan, curve: Curve, at: float) -> Iterator[float | None]:
    sheet = plan.sheet.changed({curve.over: Given(at, "a curve")})
    return (value_of(sheet, name) for name in curve.figures)


def _spread(slider: Slider) -> Iterator[float]:
    """Evenly over the slider, both ends included."""
    for number in range(_POINTS):
        part = number / (_POINTS - 1)
        if slider.is_logarithmic:
            yield slider.low * (slider.high / slider.low) ** part
        else:
            yield slider.low + (slider.high - slider.low) * part
