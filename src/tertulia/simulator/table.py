"""What is said of a run, as rows of a table: the same for a terminal, a page and a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tertulia.simulator.outcome import Outcome, percentile
from tertulia.simulator.steps import StepsOutcome
from tertulia.simulator.story import Told

Row = dict[str, str]


def rows(told: Sequence[Told]) -> list[Row]:
    """One row for each variant, of messages one for each group of people, and of caches one for
    each case."""
    found: list[Row] = []
    for one in told:
        expected = one.variant.scenario.expect
        if one.caches is not None:
            name = one.variant.name if len(told) > 1 else ""
            found += [{"variant": name, **row} for row in one.caches.texts()]
        elif one.steps is not None:
            found.append(
                {"variant": one.variant.name, **_steps_row(one.steps), "expected": expected}
            )
        else:
            assert one.outcome is not None
            found += _message_rows(one.variant.name, one.outcome, expected)
    return _without_empty(found)


def _steps_row(steps: StepsOutcome) -> Row:
    return {
        "chunks": f"{steps.n_chunks}",
        "first token": f"{steps.first_s:.2f} s",
        "a stream meanwhile": f"{steps.tokens_per_s:.1f} tokens/s",
        "otherwise": f"{steps.usual_per_s:.1f} tokens/s",
        "gap p95": f"{steps.gap_p95_s * 1000:.0f} ms",
        "longest gap": f"{steps.longest_gap_s * 1000:,.0f} ms",
    }


def _message_rows(name: str, outcome: Outcome, expected: str) -> list[Row]:
    found = []
    for number, (group, fate) in enumerate(sorted(outcome.groups.items(), reverse=True)):
        is_first = not number
        found.append(
            {
                "variant": name if is_first else "",
                "who": group,
                "messages": f"{fate.n:,}",
                "timed out": _share(fate.timed_out),
                "refused": _share(fate.refused),
                "came back": _count(fate.n_came_back),
                "over budget": _count(fate.n_over_budget),
                "begun": f"{fate.n_begun:,}",
                "capped": _count(fate.n_capped),
                "small model": _share(fate.n_small / max(1, fate.n_begun)),
                "short": _share(fate.n_short / max(1, fate.n_begun)),
                "wait p50": _seconds(fate.wait_p50_s),
                "wait p95": _seconds(fate.wait_p95_s),
                "paused": _count(fate.n_paused),
                **(_of_all(outcome) if is_first else {}),
                "expected": expected if is_first else "",
            }
        )
    return found


def _of_all(outcome: Outcome) -> Row:
    pauses = outcome.pauses_s
    retry_s = outcome.figures.get("retry_s")
    return {
        "pause p95": _seconds(percentile(pauses, 95)) if pauses else "",
        "retry after": _seconds(retry_s) if retry_s is not None else "",
        "in use": _share(outcome.busy),
        "longest wait": _seconds(outcome.longest_wait_s),
        "most waiting": _count(outcome.most_waiting),
        "rung changes": _count(len(outcome.steps)),
        "accelerator hours": f"{outcome.paid_s / 3600:,.1f}",
    }


def _without_empty(found: list[Row]) -> list[Row]:
    """Columns in which nothing stands say nothing."""
    names = list(dict.fromkeys(name for row in found for name in row))
    kept = [name for name in names if any(row.get(name) for row in found)]
    return [{name: row.get(name, "") for name in kept} for row in found]


def as_text(found: Sequence[Row]) -> str:
    """The rows for a terminal, what is expected below each variant."""
    names = [name for name in found[0] if name != "expected"] if found else []
    width = {name: max(len(name), *(len(row[name]) for row in found)) for name in names}
    lines = ["  ".join(f"{name:{width[name]}}" for name in names).rstrip()]
    for row in found:
        lines.append("  ".join(f"{row[name]:{width[name]}}" for name in names).rstrip())
        if row.get("expected"):
            lines.append(f"    expected: {row['expected']}")
    return "\n".join(lines)


def as_values(one: Told) -> dict[str, Any]:
    """A variant's figures for a program."""
    head: dict[str, Any] = {"variant": one.variant.name, "seed": one.variant.scenario.seed}
    if one.steps is not None:
        steps = one.steps
        return head | {
            "chunks": steps.n_chunks,
            "first_s": round(steps.first_s, 6),
            "tokens_per_s": round(steps.tokens_per_s, 6),
            "usual_per_s": round(steps.usual_per_s, 6),
            "gap_p95_s": round(steps.gap_p95_s, 6),
            "longest_gap_s": round(steps.longest_gap_s, 6),
        }
    if one.caches is not None:
        return head | {"rows": one.caches.values()}
    outcome = one.outcome
    assert outcome is not None
    groups = {
        name: {
            "messages": fate.n,
            "begun": fate.n_begun,
            "timed_out": fate.n_timed_out,
            "refused": fate.n_refused,
            "came_back": fate.n_came_back,
            "over_budget": fate.n_over_budget,
            "capped": fate.n_capped,
            "small": fate.n_small,
            "short": fate.n_short,
            "paused": fate.n_paused,
            "wait_p50_s": round(fate.wait_p50_s, 6),
            "wait_p95_s": round(fate.wait_p95_s, 6),
        }
        for name, fate in sorted(outcome.groups.items())
    }
    return head | {
        "groups": groups,
        "in_use": round(outcome.busy, 6),
        "accelerator_hours": round(outcome.paid_s / 3600, 6),
        "longest_wait_s": round(outcome.longest_wait_s, 6),
        "most_waiting": outcome.most_waiting,
        "rungs": [[round(at, 3), rung, region] for at, rung, region in outcome.steps],
        "figures": {name: round(value, 6) for name, value in sorted(outcome.figures.items())},
    }


def _share(share: float) -> str:
    return f"{share:.1%}" if share else ""


def _count(n: int) -> str:
    return f"{n:,}" if n else ""


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.005 else ""
