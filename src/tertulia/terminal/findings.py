"""What an examination found: one finding a line, each with what to do about it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. `advice` says what helps and is empty when all is well."""

    name: str
    state: State
    text: str
    advice: str = ""


def has_failed(findings: Sequence[Finding]) -> bool:
    """Whether something must be put right before Tertulia can work."""
    return any(finding.state == "fail" for finding in findings)


def as_lines(findings: Sequence[Finding]) -> str:
    """For a person."""
    width = max((len(finding.name) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding.state:<4}  {finding.name:<{width}}  {finding.text}")
        if finding.advice:
            lines.append(f"{'':<{6 + width}}  -> {finding.advice}")
    return "\n".join(lines)


def as_json(findings: Sequence[Finding]) -> str:
    """For a program."""
    document = {"ok": not has_failed(findings), "findings": [asdict(each) for each in findings]}
    return json.dumps(document, ensure_ascii=False, indent=2)
