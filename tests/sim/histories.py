"""What clients saw: every event of every connection, kept for the checker.

It judges only what a client can judge alone: event numbers, and what follows what.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tertulia.core.types import Turn
from tertulia.gateway.admit import Ask, StatelessAsk
from tests.sim.process import Report


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event, parsed. `id` is None for those that carry none."""

    id: int | None
    kind: str
    data: bytes


class EventParser:
    """Bytes to events. A block that was not finished is dropped, as the standard says."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Event]:
        blocks = (self._rest + data).split(b"\n\n")
        self._rest = blocks.pop()
        return [event for block in blocks if (event := _event_of(block)) is not None]


def _event_of(block: bytes) -> Event | None:
    number, kind, data = None, "", None
    for line in block.split(b"\n"):
        name, _, value = line.partition(b": ")
        if name == b"id":
            number = int(value)
        elif name == b"event":
            kind = value.decode()
        elif name == b"data":
            data = value
    return Event(number, kind, data) if data is not None else None


@dataclass(slots=True)
class Asked:
    """A turn as its client knows it."""

    owner: str
    ask: Ask
    conversation_id: str
    reply_ids: dict[str, None] = field(default_factory=dict)
    deleted: bool = False  # or perhaps: the answer to the delete never came

    @property
    def key(self) -> str:
        return self.ask.key

    @property
    def is_stateless(self) -> bool:
        """Such a turn belongs to no conversation: nothing deletes it with one."""
        return isinstance(self.ask, StatelessAsk)


@dataclass(slots=True)
class View:
    """What one client has assembled of one reply."""

    reply_id: str
    name: str
    # A plain client sends the last id alone, as an `EventSource` does.
    is_plain: bool = False
    attempt: int | None = None
    last_id: int = 0
    text: str = ""
    refusal: bytes | None = None
    resets: int = 0
    end: Event | None = None

    def reset(self) -> None:
        self.last_id, self.text, self.refusal, self.end = 0, "", None, None


@dataclass(frozen=True, slots=True)
class Stop:
    """An answered stop: what it said, and when."""

    turn: Turn
    at: float


@dataclass(slots=True)
class History:
    """All that clients saw. `seen` is what every event was, wherever it was seen first."""

    report: Report
    asked: dict[tuple[str, str], Asked] = field(default_factory=dict)
    views: list[View] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    seen: dict[tuple[str, int, int], tuple[str, bytes]] = field(default_factory=dict)
    n_events: int = 0
    n_resets: int = 0
    n_connections: int = 0

    def view(self, reply_id: str, name: str, *, is_plain: bool) -> View:
        view = View(reply_id, name, is_plain)
        self.views.append(view)
        return view

    def take(self, view: View, event: Event) -> None:
        """One event of a connection, in order (C3, C4)."""
        self.n_events += 1
        if view.end is not None:
            self.report("C6", f"{view.reply_id}: {event.kind} after {view.end.kind}")
        if event.id is None:
            if event.kind == "reset":
                view.resets += 1
                # Who names no attempt begins anew after any but the first, also where only the row
                # could tell it while the log was out of reach.
                self.n_resets += not view.is_plain
                view.reset()
                view.attempt = None
            return
        if event.id != view.last_id + 1:
            self.report("C3", f"{view.reply_id} {view.name}: {view.last_id} then {event.id}")
        view.last_id = event.id
        value = json.loads(event.data)
        if event.id == 1:
            if event.kind != "meta":
                self.report("C3", f"{view.reply_id} begins with {event.kind}")
            else:
                view.attempt = value["attempt"]
        self._same_everywhere(view, event)
        self._assemble(view, event, value)

    def _same_everywhere(self, view: View, event: Event) -> None:
        assert event.id is not None
        what = (event.kind, event.data)
        known = self.seen.setdefault((view.reply_id, view.attempt or 0, event.id), what)
        if known != what:
            self.report(
                "C4", f"{view.reply_id}/{view.attempt}#{event.id}: {known} and {what} ({view.name})"
            )

    def _assemble(self, view: View, event: Event, value: Any) -> None:
        if view.refusal is not None and event.kind == "delta":
            self.report("I10", f"{view.reply_id}: text after a refusal")
        if event.kind == "delta":
            view.text += value["text"]
        elif event.kind == "refusal":
            view.refusal = event.data
        elif event.kind in ("done", "fail"):
            view.end = event
