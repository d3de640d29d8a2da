"""What clients saw, a JSON object a call: the only evidence that no process of ours could bend.

A call whose outcome nobody knows (a time-out, a broken connection) is `info`: it may have happened.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

Outcome = Literal["ok", "fail", "info"]
# `closed` by the server's own end of the answer, `left` by the client; the others are breaks.
End = Literal["closed", "left", "eof", "rst", "timeout", "refused", ""]

MARK_LETTERS: Final = 12
# The fake engine says the mark of its question again; some of these sentences the checks flag.
FLAGGED: Final = re.compile(f"You said mark-[0-9a-f]{{{MARK_LETTERS - 1}}}f")


@dataclass(slots=True)
class Event:
    """One server-sent event as it arrived. `id` is None for those that carry none."""

    id: int | None
    kind: str
    data: str
    at: float


@dataclass(slots=True)
class Call:
    """One HTTP call of one client. Times are of the machine's monotonic clock.

    `view` names the reader that goes on over several calls; `after` and `attempt` are what it asked
    for. `marks` are all marks in the bytes that came back; every mark belongs to one turn.
    """

    op: str
    user: str
    proc: str
    t0: float
    t1: float = 0.0
    conv: str = ""
    key: str = ""
    body_sha: str = ""
    view: str = ""
    after: int = 0
    attempt: int = 0
    reply: str = ""
    http: int = 0
    code: str = ""
    outcome: Outcome = "info"
    end: End = ""
    body: str = ""
    marks: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @property
    def is_acknowledged(self) -> bool:
        """Whether the client was told that its turn is taken."""
        return self.op in ("post", "repost") and (200 <= self.http < 300 or bool(self.events))


@dataclass(slots=True)
class Asked:
    """A turn as its client knows it: written before the first call for it."""

    user: str
    plan: str
    conv: str
    key: str
    content: str
    mark: str
    at: float


class Writer:
    """Appends to one history. Each line is written whole."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def asked(self, asked: Asked) -> None:
        self._write({"asked": asdict(asked)})

    def call(self, call: Call) -> None:
        line = asdict(call)
        line["events"] = [[e.id, e.kind, e.data, e.at] for e in call.events]
        self._write(line)

    def close(self) -> None:
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


def read(path: Path) -> tuple[list[Asked], list[Call]]:
    """Everything in one history, calls in the order in which they began."""
    asked: list[Asked] = []
    calls: list[Call] = []
    for line in lines_of(path):
        if "asked" in line:
            asked.append(Asked(**line["asked"]))
        else:
            line["events"] = [Event(*event) for event in line["events"]]
            calls.append(Call(**line))
    calls.sort(key=lambda call: call.t0)
    return asked, calls


def appending(path: Path) -> int:
    """A file for lines, opened at the beginning of one: the last writer may have been killed where
    its line crossed from one page into the next."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, b"\n")
    return file


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a file whose writers may have been killed within their last one."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            with suppress(json.JSONDecodeError):
                yield json.loads(line)
