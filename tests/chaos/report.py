"""What a run has shown, in figures: for a person at a terminal, and as a line for programs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.check_machines import pauses_by_fault
from tests.chaos.checker import Violation
from tests.chaos.evidence import Evidence

# Process kills and freezes; the other deeds are counted by their own names.
DEADLY: Final = frozenset(("kill", "promote", "freeze"))


@dataclass(slots=True)
class Report:
    """The figures of one scene."""

    seed: int
    took_s: float
    deeds: dict[str, int]
    deadly: int
    turns: int
    tokens: int
    generated: int
    events: int
    calls: int
    resets: int
    reruns: int
    refusals: dict[str, int]
    ends: dict[str, int]
    drift: int
    quiet_s: float
    pauses: dict[str, tuple[int, float, float, float]]
    violations: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """For a person."""
        deeds = ", ".join(f"{name} {n}" for name, n in sorted(self.deeds.items()))
        pauses = ", ".join(
            f"{fault} {n}: {p50:.2f} {p95:.2f} {most:.2f} s"
            for fault, (n, p50, p95, most) in self.pauses.items()
        )
        shown = f"""\
seed {self.seed}: {self.deadly} kills and freezes, {self.turns} turns, {self.tokens} tokens stored
of {self.generated} generated, {self.calls} calls, {self.events} events, {self.took_s:.0f} s
deeds: {deeds}
ends: {self.ends}, run again {self.reruns}, resets {self.resets}, refusals {self.refusals}
pauses (readers: p50, p95, most): {pauses}
ledger drift {self.drift}, all ended {self.quiet_s:.1f} s after the last heal
{len(self.violations)} violations"""
        return [*shown.splitlines(), *(f"    {text}" for text in self.violations)]


def report_of(
    evidence: Evidence, violations: Sequence[Violation], seed: int, took_s: float
) -> Report:
    """All figures of one scene's evidence."""
    pauses = {
        fault: (len(all_), _share(all_, 0.5), _share(all_, 0.95), all_[-1])
        for fault, all_ in pauses_by_fault(evidence).items()
    }
    events = [event for call in evidence.calls for event in call.events]
    return Report(
        seed=seed,
        took_s=took_s,
        deeds=dict(Counter(f"{i.fault} {i.kind}" for i in evidence.incidents)),
        deadly=sum(len(i.victim.split()) for i in evidence.incidents if i.kind in DEADLY),
        turns=len(evidence.turns),
        tokens=sum(turn.output for turn in evidence.turns.values()),
        generated=sum(g.tokens for g in evidence.generations),
        events=len(events),
        calls=len(evidence.calls),
        resets=sum(event.kind == "reset" for event in events),
        reruns=sum(call.op == "again" for call in evidence.calls),
        refusals=dict(Counter(f"{c.http} {c.code}" for c in evidence.calls if c.http >= 400)),
        ends=dict(Counter(turn.status for turn in evidence.turns.values())),
        drift=sum(balance.drift for balance in evidence.balances),
        quiet_s=evidence.quiet_at - evidence.heal_at,
        pauses=pauses,
        violations=[str(one) for one in violations],
    )


def _share(values: Sequence[float], share: float) -> float:
    """The value that so large a share does not exceed; `values` are sorted."""
    return values[max(0, math.ceil(share * len(values)) - 1)]
