"""A whole plan: the sheet that was asked for, and beside it the one by the other timing.

Outside the presets a plan is by measured timing, and what the data sheets alone would say is shown
beside it; a preset is as its document has it, and what was measured is shown beside that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tertulia.planner.book import BOOK
from tertulia.planner.catalogue import ACCELERATORS, MODELS, PRECISIONS
from tertulia.planner.measured import (
    FITTED_NAMES,
    FITTED_ON,
    MEASURED,
    ROOFLINE,
    ROOFLINE_VALUES,
    TIMING_NAMES,
    Timing,
    timing_of,
)
from tertulia.planner.preset import Preset
from tertulia.planner.presets import PRESETS
from tertulia.planner.sheet import LARGE, POOLS, SMALL, Given, Sheet
from tertulia.planner.wishes import SIMULATED, Nonsense, Read, read_wish

# Without a word from the operator: what is measured best, and enough for most.
DEFAULTS: Final = {
    LARGE: {"model": "llama-3.1-70b", "accelerator": "h100-sxm", "precision": "bf16"},
    SMALL: {"model": "llama-3.1-8b", "accelerator": "h100-sxm", "precision": "bf16"},
}
_WIDTHS: Final = {LARGE: 4.0, SMALL: 1.0}
_TRIED_WIDTHS: Final = (1, 2, 4, 8)  # as servers have them


@dataclass(frozen=True, slots=True)
class Wish:
    """Something asked for: the table and who asked. Of several, the later wins."""

    document: Mapping[str, Any]
    by: str


@dataclass(frozen=True, slots=True)
class Plan:
    """`sheet` is the plan. `other` is the same fleet by the other timing, named `other_is`."""

    sheet: Sheet
    timing_is: str
    other: Sheet
    other_is: str
    preset: Preset | None
    notes: tuple[str, ...]

    def value(self, name: str) -> float:
        """A figure of the plan."""
        return self.sheet.value(name)


def plan_for(wishes: Sequence[Wish], preset: str | None = None) -> Plan:
    """The plan; raises `Nonsense` for what makes no sense."""
    read = Read()
    for wish in wishes:
        read_wish(wish.document, wish.by, into=read)
    if preset is None:
        plan = _of_tables(read.numbers, read.words)
    elif preset in PRESETS:
        plan = _of_preset(PRESETS[preset], read.numbers, read.words)
    else:
        raise Nonsense(f"There is no preset {preset!r}; there are {', '.join(PRESETS)}.")
    _check(plan.sheet)
    beyond = _beyond(plan.sheet, read.ranges)
    if beyond and not read.may_extrapolate:
        raise Nonsense(f"{beyond[0]}: measure up to there, or plan with --extrapolate.")
    return replace(plan, notes=(*plan.notes, *beyond))


def widths(wishes: Sequence[Wish], pool: str = LARGE) -> dict[int, Plan | Nonsense]:
    """The plan with 1, 2, 4 and 8 accelerators for each replica; or why there is none with so many.

    Not for presets: what they were measured as has one width.
    """
    found: dict[int, Plan | Nonsense] = {}
    for width in _TRIED_WIDTHS:
        wish = Wish({pool: {"accelerators_per_replica": width}}, "--widths")
        try:
            found[width] = plan_for([*wishes, wish])
        except Nonsense as error:
            found[width] = error
    return found


def _beyond(sheet: Sheet, ranges: Mapping[str, tuple[float, float]]) -> list[str]:
    """Where the plan leaves what its timing was measured within."""
    found = []
    for name, (low, high) in ranges.items():
        pool, _, bare = name.partition(".")
        if not sheet.value(f"{pool}.share"):
            continue
        value = sheet.value(BOOK.full(bare, pool))
        if not low <= value <= high:
            found.append(
                f"{pool}: {bare} was measured from {low:,.0f} to {high:,.0f}, and the plan has"
                f" {value:,.0f}"
            )
    return found


def _of_preset(preset: Preset, numbers: Mapping[str, Given], words: Mapping[str, str]) -> Plan:
    """As the document has it. Wishes change its inputs; its hardware is not from our tables."""
    if any("." in name for name in words):
        raise Nonsense("A preset has its own hardware: change its figures, as `large.bandwidth`.")
    printed = {name: Given(value, f"preset {preset.name}") for name, value in preset.values.items()}
    measured, notes = printed, []
    for pool, (model, precision, width) in preset.models.items():
        timing = timing_of(model, precision, width, FITTED_ON)
        measured = _with_timing(measured, pool, timing)
        notes.append(f"{pool}: {timing.source}")
    sheets = {
        ROOFLINE: Sheet(BOOK, _with_hits({**printed, **numbers}, words)),
        MEASURED: Sheet(BOOK, _with_hits({**measured, **numbers}, words)),
    }
    names = {ROOFLINE: "as printed", MEASURED: "by measured steps"}
    timing_is = words.get("timing", ROOFLINE)
    return _chosen(sheets, names, timing_is, preset, notes)


def _of_tables(numbers: Mapping[str, Given], words: Mapping[str, str]) -> Plan:
    measured: dict[str, Given] = {}
    roofline: dict[str, Given] = {}
    notes = []
    by_sheet = Timing(dict(ROOFLINE_VALUES), "60 % and 40 % of the data sheet", is_measured=False)
    for pool in POOLS:
        hardware, timing = _hardware(pool, numbers, words)
        measured |= _with_timing(hardware, pool, timing)
        roofline |= _with_timing(hardware, pool, by_sheet)
        notes.append(f"{pool}: {timing.source}")
    plain = {name: one for name, one in numbers.items() if not _is_timing(name)}
    sheets = {
        MEASURED: Sheet(BOOK, _with_hits({**measured, **numbers}, words)),
        ROOFLINE: Sheet(BOOK, _with_hits({**roofline, **plain}, words)),
    }
    names = {ROOFLINE: "by the data sheet alone", MEASURED: "by measured steps"}
    return _chosen(sheets, names, words.get("timing", MEASURED), None, notes)


def _chosen(
    sheets: Mapping[str, Sheet],
    names: Mapping[str, str],
    timing_is: str,
    preset: Preset | None,
    notes: Sequence[str],
) -> Plan:
    other = ROOFLINE if timing_is == MEASURED else MEASURED
    return Plan(
        sheets[timing_is], names[timing_is], sheets[other], names[other], preset, tuple(notes)
    )


def _hardware(
    pool: str, numbers: Mapping[str, Given], words: Mapping[str, str]
) -> tuple[dict[str, Given], Timing]:
    """The pool's model and accelerators as inputs, and how fast that is."""
    said = {bare: words.get(f"{pool}.{bare}", word) for bare, word in DEFAULTS[pool].items()}
    model, precision, accelerator = said["model"], said["precision"], said["accelerator"]
    width = numbers.get(f"{pool}.accelerators_per_replica")
    n_accelerators = width.value if width is not None else _WIDTHS[pool]
    values = {
        **{name: Given(one, model) for name, one in MODELS[model].values().items()},
        **{name: Given(one, precision) for name, one in PRECISIONS[precision].values().items()},
        **{
            name: Given(one, accelerator)
            for name, one in ACCELERATORS[accelerator].values(precision).items()
        },
        "accelerators_per_replica": width or Given(n_accelerators, "default"),
    }
    own = {bare for name in numbers if (bare := name.removeprefix(f"{pool}.")) != name}
    is_own = bool(own & values.keys() - {"accelerators_per_replica", "price_per_hour"})
    timing = timing_of(model, precision, int(n_accelerators), accelerator, is_own=is_own)
    if own >= FITTED_NAMES:
        by = ", ".join(sorted({numbers[f"{pool}.{name}"].by for name in FITTED_NAMES}))
        timing = replace(timing, source=f"given by {by}")
    return {f"{pool}.{name}": one for name, one in values.items()}, timing


def _with_timing(given: Mapping[str, Given], pool: str, timing: Timing) -> dict[str, Given]:
    """The same with another timing: every coefficient of the old one is taken back."""
    kept = {
        name: one
        for name, one in given.items()
        if not (name.startswith(f"{pool}.") and _is_timing(name))
    }
    fresh = {f"{pool}.{name}": Given(one, timing.source) for name, one in timing.values.items()}
    return kept | fresh


def _is_timing(name: str) -> bool:
    pool, _, bare = name.rpartition(".")
    return pool in POOLS and bare in TIMING_NAMES


def _with_hits(given: dict[str, Given], words: Mapping[str, str]) -> dict[str, Given]:
    if words.get("hit_share") != SIMULATED:
        return given
    found = Sheet(BOOK, given).value("hits_simulated")
    return given | {"cached_share": Given(found, "simulated")}


def _check(sheet: Sheet) -> None:
    """What makes sense figure by figure may still make none together."""
    for pool in POOLS:
        if not sheet.value(f"{pool}.share"):
            continue
        if sheet.value(f"{pool}.kv_room_bytes") <= 0:
            raise Nonsense(
                f"The {pool} model's weights ({sheet.value(f'{pool}.weights_bytes') / 1e9:.0f} GB)"
                " leave no room for a KV cache on"
                f" {sheet.value(f'{pool}.accelerators_per_replica'):.0f} ×"
                f" {sheet.value(f'{pool}.memory_bytes') / 1e9:.0f} GB: take more or larger ones,"
                " or fewer bits."
            )
        if sheet.value(f"{pool}.batch") < 1:
            raise Nonsense(_no_batch(sheet, pool))


def _no_batch(sheet: Sheet, pool: str) -> str:
    if sheet.value(f"{pool}.batch_by_memory") < 1:
        return f"Not one conversation fits into the KV cache of a replica of the {pool} model."
    weights_ms = 1e3 * (sheet.value(f"{pool}.read_s_weights") + sheet.value(f"{pool}.a_s"))
    chunk_ms = 1e3 * sheet.value(f"{pool}.chunk_s")
    return (
        f"No replica of the {pool} model keeps {1e3 * sheet.value('gap_target_s'):g} ms between"
        f" tokens: reading the weights alone takes {weights_ms:.1f} ms a step and a chunk of a"
        f" prompt {chunk_ms:.1f} ms; take a smaller chunk, more accelerators, or another target."
    )
