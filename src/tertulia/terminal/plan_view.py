"""How a plan looks in a terminal: the answer first, then how it follows, figure by figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from tertulia.planner.book import BOOK
from tertulia.planner.catalogue import ACCELERATORS, MODELS
from tertulia.planner.plan import Plan
from tertulia.planner.preset import Line
from tertulia.planner.sheet import LARGE, POOLS, Figure, Sheet
from tertulia.planner.telling import LESS, MORE, Swing, binding, told, value_of
from tertulia.planner.wishes import Nonsense
from tertulia.terminal.quantities import shown

# What is shown, in the order in which one would reckon on paper.
FLEET_SECTIONS: Final[Mapping[str, Sequence[str]]] = {
    "Traffic": (
        "average_turns_per_s",
        "peak_turns_per_s",
        "answer_s",
        "streams",
        "waiting_conversations",
    ),
    "Tokens": (
        "prompt_tokens",
        "cached_share",
        "uncached_tokens",
        "answer_tokens_per_s",
        "uncached_tokens_per_s",
    ),
}
POOL_SECTION: Final = (
    "kv_bytes_per_token",
    "weights_bytes",
    "kv_tokens",
    "batch_by_memory",
    "batch_by_gap",
    "batch",
    "step_s",
    "stream_tokens_per_s",
    "decode_tokens_per_s",
    "prefill_tokens_per_s",
    "largest_chunk_tokens",
    "gap_with_chunk_s",
    "first_token_s",
    "accelerator_s",
    "turns_per_s",
    "busy_decode",
    "busy_prefill",
    "in_flight",
    "replicas_by_time",
    "replicas_by_slots",
    "replicas_by_memory",
    "replicas",
    "accelerators",
    "full_turns_per_s",
    "idle_tokens",
    "free_tokens",
    "host_tokens",
)
REST_SECTIONS: Final[Mapping[str, Sequence[str]]] = {
    "When something is lost": (
        "busy_prefill_accelerators",
        "busy_cold_accelerators",
        "paid_alone_at",
        "ladder_to_small_removes",
    ),
    "Memory, storage, doors, cells": (
        "idle_bytes",
        "idle_bytes_per_server",
        "host_bytes_per_server",
        "writes_per_s",
        "stored_bytes_per_day",
        "stored_bytes_kept",
        "gateways",
        "regions",
        "cells",
    ),
    "Money": (
        "accelerator_cost_per_day",
        "scaled_cost_per_day",
        "team_per_day",
        "cost_per_1000",
        "cost_per_million_tokens",
        "cost_per_million_answer_tokens",
        "api_cost_per_1000",
        "share_of_api",
        "crossover_by_team",
        "crossover_by_smallest_fleet",
        "crossover_users",
    ),
}
_NAME: Final = 31
_VALUE: Final = 22


def plan_lines(plan: Plan) -> Iterator[str]:
    """The whole plan for a person."""
    pools = [pool for pool in POOLS if plan.value(f"{pool}.share")]
    yield from _verdict(plan, pools)
    for title, names in FLEET_SECTIONS.items():
        yield from _section(plan.sheet, title, names)
    for pool in pools:
        title = f"The {pool} pool ({plan.value(f'{pool}.share'):.0%} of turns)"
        yield from _section(plan.sheet, title, [f"{pool}.{name}" for name in POOL_SECTION])
    for title, names in REST_SECTIONS.items():
        yield from _section(plan.sheet, title, names)
    if plan.preset is not None:
        yield from _printed(plan, plan.preset.lines)
    yield ""
    yield "How a figure follows: --explain NAME. What may be given: --names. What if: --set NAME=X."


def _verdict(plan: Plan, pools: Sequence[str]) -> Iterator[str]:
    """The answer, what it follows from, and what the other timing would say."""
    yield (
        f"{_count(plan.sheet, 'replicas')} replicas on {_count(plan.sheet, 'accelerators')}"
        f" accelerators, {plan.timing_is}:"
        f" {shown(plan.value('cost_per_1000'), '$')} for 1,000 turns"
        f" (target {shown(plan.value('cost_target'), '$')}),"
        f" {shown(plan.value('accelerator_cost_per_day'), '$/day')}."
    )
    for pool in pools:
        found = binding(plan.sheet, pool)
        yield f"  {pool}: {found.resource} binds: {found.says}; {found.batch_says}."
    yield from (f"  {warning}" for warning in _warnings(plan.sheet, pools))
    yield from _beside(plan, pools)
    notes = [note for note in plan.notes if note.partition(":")[0] in pools]
    yield from (f"  measured steps of {note}" for note in notes)


def _beside(plan: Plan, pools: Sequence[str]) -> Iterator[str]:
    """What the other timing would say, if it says anything."""
    begin = f"{plan.other_is[0].upper()}{plan.other_is[1:]}"
    ours, theirs = plan.value("accelerators"), value_of(plan.other, "accelerators")
    if theirs is None:
        yield f"{begin} no replica would keep the targets."
        return
    yield f"{begin} it would be {theirs:,.0f} accelerators ({theirs / ours - 1:+.0%})."
    for pool in pools:
        yield (
            f"  {pool}: a step of {plan.value(f'{pool}.batch'):.0f} takes"
            f" {shown(plan.value(f'{pool}.step_s'), 's')}, there"
            f" {shown(plan.other.value(f'{pool}.step_s'), 's')} with"
            f" {plan.other.value(f'{pool}.batch'):.0f}; prompts are read at"
            f" {shown(plan.value(f'{pool}.prefill_tokens_per_s'), 'tokens/s')}, there"
            f" {shown(plan.other.value(f'{pool}.prefill_tokens_per_s'), 'tokens/s')}."
        )


def _warnings(sheet: Sheet, pools: Sequence[str]) -> Iterator[str]:
    """Targets that the plan misses."""
    for pool in pools:
        gap_s, target_s = sheet.value(f"{pool}.gap_with_chunk_s"), sheet.value("gap_target_s")
        if gap_s > target_s:
            yield (
                f"{pool}: beside a chunk of {sheet.value(f'{pool}.chunk_tokens'):.0f} tokens the"
                f" gap is {shown(gap_s, 's')}, over the target of {shown(target_s, 's')}; the"
                f" largest chunk is {sheet.value(f'{pool}.largest_chunk_tokens'):,.0f}."
            )
        if sheet.value(f"{pool}.first_token_s") > sheet.value("first_token_target_s"):
            yield f"{pool}: the first token misses its target even with nobody in front."
    if sheet.value("cost_per_1000") > sheet.value("cost_target"):
        yield "1,000 turns cost more than their target."
    if math.isinf(sheet.value("crossover_users")):
        yield "A hosted model costs less, however many people come."


def _section(sheet: Sheet, title: str, names: Sequence[str]) -> Iterator[str]:
    yield ""
    yield title
    for name in names:
        one = told(sheet, name)
        value = "never" if one.value is None else shown(one.value, one.unit)
        how = one.formula or f"given by {one.by}"
        yield f"  {name:<{_NAME}} {value:>{_VALUE}}  {how}"


def _printed(plan: Plan, lines: Sequence[Line]) -> Iterator[str]:
    yield ""
    yield "What the document prints, and what follows from its inputs"
    yield f"  {'figure':<{_NAME}} {'printed':>12} {'computed':>14}  is"
    for line in lines:
        printed = "" if line.printed is None else f"{line.printed:,.10g}"
        but = ", ".join(f"{name} = {value:g}" for name, value in line.but.items())
        remark = "; ".join(part for part in (but, line.note) if part)
        yield (
            f"  {line.name:<{_NAME}} {printed:>12} {line.value(plan.sheet):>14,.6g}"
            f"  {line.figure}{f' ({remark})' if remark else ''}"
        )


def explanation(plan: Plan, name: str) -> Iterator[str]:
    """One figure: what it is, its formula, and its inputs one by one; and a document's line."""
    sheet = plan.sheet
    for line in () if plan.preset is None else plan.preset.lines:
        if line.name == name:
            printed = "nothing" if line.printed is None else f"{line.printed:,.10g}"
            yield f"{name} of {plan.preset.name if plan.preset else ''}: it prints {printed}."
            yield f"  It is {line.figure} × {line.times:g}. {line.note}".rstrip()
            sheet, name = line.sheet(sheet), line.figure
            break
    one = told(sheet, name)
    value = "never" if one.value is None else shown(one.value, one.unit)
    yield f"{name} = {value}"
    yield f"  {one.says}"
    if one.formula is None:
        yield f"  given by {one.by}"
        return
    yield f"  formula: {one.formula}"
    for each in one.uses:
        part = told(sheet, each)
        worth = "never" if part.value is None else shown(part.value, part.unit)
        origin = part.formula or (part.by if part.by == "default" else f"given by {part.by}")
        yield f"    {each:<{_NAME}} {worth:>{_VALUE}}  {origin}"
    beside = value_of(plan.other, name) if sheet is plan.sheet else None
    if beside is not None and beside != one.value:
        yield f"  {plan.other_is}: {shown(beside, one.unit)}"


def swing_lines(plan: Plan, found: Sequence[Swing], figure: str) -> Iterator[str]:
    """What matters most if it was guessed wrongly."""
    yield f"{figure}: {plan.value(figure):,.0f}. If an input were {LESS:g} or {MORE:g} times it:"
    for one in found:
        yield f"  {one.name:<{_NAME}} {one.value:>12,.5g}  {one.less:>10,.0f} {one.more:>10,.0f}"


def width_lines(found: Mapping[int, Plan | Nonsense]) -> Iterator[str]:
    """The large pool by the number of accelerators for each replica."""
    yield "each  replicas  accelerators   batch  gap beside a chunk  for 1,000 turns  binds"
    for width, plan in found.items():
        if isinstance(plan, Nonsense):
            yield f"{width:>4}  {plan}"
            continue
        gap = shown(plan.value("large.gap_with_chunk_s"), "s")
        cost = shown(plan.value("cost_per_1000"), "$")
        estimated = ", estimated" if "load-test your own" in plan.notes[0] else ""
        yield (
            f"{width:>4} {plan.value('large.replicas'):>9,.0f}"
            f" {plan.value('large.accelerators'):>13,.0f} {plan.value('large.batch'):>7.0f}"
            f" {gap:>19} {cost:>16}  {binding(plan.sheet, LARGE).resource}{estimated}"
        )


def name_lines() -> Iterator[str]:
    """Everything that may be given, and everything that follows."""
    for title, is_figure in (("May be given:", False), ("Follows, unless it is given:", True)):
        yield title
        for name in BOOK.names():
            found = BOOK.find(name)
            assert found is not None, name
            if isinstance(found, Figure) is is_figure and not name.startswith("small."):
                yield f"  {name:<{_NAME}} {found.unit:<16} {found.says}"
    yield "All of [large] is there for [small] as well."


def catalogue_lines() -> Iterator[str]:
    """Accelerators and models, with their sources."""
    yield "accelerator     GB   TB/s  TFLOP/s in 16 bits, in 8 bits  $/h"
    for one in ACCELERATORS.values():
        eight = "–" if one.tflops_8 is None else f"{one.tflops_8:,.0f}"
        yield (
            f"{one.name:<12} {one.memory_gb:>5.0f} {one.bandwidth_tb_s:>6.2f}"
            f" {one.tflops_16:>19,.0f} {eight:>10} {one.price_per_hour:>5.2f}"
            f"  {one.says}: {one.source}"
        )
    yield ""
    yield f"{'model':<16} {'params':>8} {'layers':>7} {'KV heads':>9} {'head':>5}"
    for model in MODELS.values():
        yield (
            f"{model.name:<16} {model.params_b:>7.3g}B {model.layers:>7} {model.kv_heads:>9}"
            f" {model.head_dim:>5}  {model.source}"
        )


def _count(sheet: Sheet, name: str) -> str:
    return f"{sheet.value(name):,.0f}"
