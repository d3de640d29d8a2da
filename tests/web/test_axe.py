"""axe objects to no state of the page, in both colours and on both sizes; and the page can run from
right to left.

Over the fake, since some states need a replica that stands still (`states.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import pytest
from playwright.async_api import Page

from tests.e2e.processes import ROOT, Service
from tests.web.person import Person
from tests.web.states import SCENES, Colours, Scene, look

pytestmark = pytest.mark.anyio

AXE = ROOT / "web/node_modules/axe-core/axe.min.js"
ALL: Final = {
    "type": "tag",
    "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
}
# What another size may change, and other colours: the tree is the same.
OF_SIZE: Final = {
    "type": "rule",
    "values": ["color-contrast", "target-size", "scrollable-region-focusable", "region"],
}
OF_COLOURS: Final = {"type": "rule", "values": ["color-contrast"]}
LOOKS: Final[tuple[tuple[str, Colours, Mapping[str, object]], ...]] = (
    ("wide", "light", ALL),
    ("wide", "dark", OF_COLOURS),
    ("phone", "dark", OF_COLOURS),
    ("phone", "light", OF_SIZE),
)


@pytest.fixture
def service(fake_service: Service) -> Service:
    """For all tests of this file."""
    return fake_service


async def objections(page: Page, rules: Mapping[str, object]) -> list[object]:
    """What axe objects to."""
    if not await page.evaluate("() => 'axe' in window"):
        await page.evaluate(AXE.read_text())
    found: list[object] = await page.evaluate(
        "async (rules) => (await axe.run(document, { runOnly: rules })).violations"
        ".map((one) => [one.id, one.nodes.map((node) => node.target.join(' '))])",
        rules,
    )
    return found


@pytest.mark.parametrize("scene", SCENES, ids=[scene.__name__ for scene in SCENES])
async def test_axe_finds_nothing(person: Person, scene: Scene) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed (`scripts/build-page` installs it)")
    found: dict[str, object] = {}
    try:
        async for state in scene(person):
            for size, colours, rules in LOOKS:
                await look(person.page, size, colours)
                if objects := await objections(person.page, rules):
                    found[f"{state}, {size}, {colours}"] = objects
            await look(person.page, "wide", "light")  # the scene goes on as it was
    finally:
        await person.service.pace(0.001)
    assert found == {}, json.dumps(found, indent=1)


async def test_the_page_can_be_read_from_right_to_left(person: Person) -> None:
    """No language of the page is written so yet; nothing of the layout stands in its way."""
    conversation = await person.plant("مرحبا", "أهلا")
    for width in (1100, 360):
        await person.page.set_viewport_size({"width": width, "height": 740})
        await person.open(conversation)
        await person.page.evaluate("() => (document.documentElement.dir = 'rtl')")
        wide = await person.page.evaluate("() => document.documentElement.scrollWidth")
        assert wide == width
        chat = await person.page.locator(".chat").bounding_box()
        assert chat is not None
        assert chat["x"] == 0  # the list is at the other side, or over it
        send = await person.page.get_by_role("button", name="Send", exact=True).bounding_box()
        assert send is not None
        assert send["x"] < width / 2
