"""What the browser's own trace says of a page that opens and of an answer that streams: in which
order things come and what moves, as times differ from machine to machine."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from playwright.async_api import Browser, expect

from tests.e2e.processes import Service
from tests.web.person import SHORT, Person
from tests.web.states import ANSWER

pytestmark = pytest.mark.anyio

CATEGORIES: Final = ["devtools.timeline", "loading", "v8"]
# What moves by itself under a reader's eyes, as Lighthouse counts it: more is no longer good.
MOST_SHIFT: Final = 0.1
MOST_EARLY: Final = 12  # requests before the first text is painted
LATE: Final = ("highlight", "formula")


@pytest.fixture
def service(fake_service: Service) -> Service:
    """For all tests of this file."""
    return fake_service


async def test_a_trace_shows_text_before_its_helpers_and_nothing_that_jumps(
    person: Person, chromium: Browser
) -> None:
    conversation = await person.plant(SHORT, ANSWER)
    await chromium.start_tracing(page=person.page, categories=CATEGORIES)
    await person.open(conversation)
    await expect(person.last.locator(".is-coloured")).to_be_visible()
    await expect(person.last.locator(".formula-block.is-set")).to_be_visible()
    await person.ask_and_read("And in winter?")
    events = json.loads(await chromium.stop_tracing())["traceEvents"]
    painted = _first(events, "firstContentfulPaint")
    early = " ".join(_names(events, "v8.compileModule", until=painted))
    late = " ".join(_names(events, "v8.compileModule"))
    assert early, "the trace has no script"
    for helper in LATE:
        assert f"/{helper}-" in late, late
        assert f"/{helper}-" not in early
    assert 0 < len(_names(events, "ResourceSendRequest", until=painted)) <= MOST_EARLY
    assert _shift(events) <= MOST_SHIFT


def _first(events: list[dict[str, Any]], name: str) -> float:
    return float(min(event["ts"] for event in events if event["name"] == name))


def _names(events: list[dict[str, Any]], name: str, until: float | None = None) -> list[str]:
    """The addresses in events of a kind."""
    return [
        str(event["args"]["data"].get("url", ""))
        for event in events
        if event["name"] == name
        and "data" in event["args"]
        and (until is None or event["ts"] <= until)
    ]


def _shift(events: list[dict[str, Any]]) -> float:
    """Of all that moved without a reader's doing."""
    moved = [event["args"]["data"] for event in events if event["name"] == "LayoutShift"]
    return float(sum(one["score"] for one in moved if not one["had_recent_input"]))
