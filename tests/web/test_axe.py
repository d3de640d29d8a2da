"""axe objects to no state of the page, in both colours; and the page can run from right to left."""

from __future__ import annotations

import json

import pytest
from playwright.async_api import Page, expect

from tests.e2e.processes import ROOT
from tests.web.person import SHORT, Person

pytestmark = pytest.mark.anyio

AXE = ROOT / "web/node_modules/axe-core/axe.min.js"
SECTIONS = ("Usage", "Instructions", "API keys", "Your data", "Sessions", "Look and language")
TABS = ("Users", "Plans and budgets", "System prompts", "Safety", "Planner", "Fleet")


async def accessible(page: Page, rules: str) -> None:
    """What axe objects to, which is nothing, once nothing on the page moves."""
    await page.evaluate("() => Promise.all(document.getAnimations().map((one) => one.finished))")
    found = await page.evaluate(
        "async (rules) => (await axe.run(document, { runOnly: rules.split(' ') })).violations"
        ".map((one) => [one.id, one.nodes.map((node) => node.target.join(' '))])",
        rules,
    )
    assert found == [], json.dumps(found, indent=1)


@pytest.mark.parametrize(
    ("colours", "rules"),
    [("light", "wcag2a wcag2aa wcag21a wcag21aa wcag22aa best-practice"), ("dark", "wcag2aa")],
    ids=["light", "dark"],
)
async def test_axe_finds_nothing(person: Person, colours: str, rules: str) -> None:
    """Some twenty states, half a second each: that is why it takes its time. In the dark only the
    colours differ."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed (`scripts/build-page` installs it)")
    page = person.page
    await page.add_init_script(path=AXE)
    await page.emulate_media(color_scheme="dark" if colours == "dark" else "light")
    await person.becomes_administrator()
    await person.open()
    await accessible(page, rules)  # empty
    conversation = await person.plant(SHORT, "Hello.\n\n```python\nx = 1\n```")
    await person.copies(conversation, 40)
    await person.open(conversation)
    await expect(page.locator(".entry").nth(10)).to_be_attached()
    await page.locator(".entry").nth(1).get_by_role("button", name="Options of").click()
    await accessible(page, rules)
    await page.keyboard.press("Escape")
    await page.locator("#search").fill("nothing like it")
    await expect(page.locator(".list-note")).to_be_visible()
    await accessible(page, rules)
    await page.locator("h1").click()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await accessible(page, rules)
    await page.keyboard.press("Escape")
    await page.locator(".me").click()
    for section in SECTIONS:
        await page.get_by_role("tab", name=section).click()
        await accessible(page, rules)
    await page.keyboard.press("Escape")
    await page.goto(person.url + "/operations")
    await expect(page.locator(".chart canvas")).to_have_count(4)
    for tab in TABS:
        await (
            page.get_by_role("navigation", name="Operations")
            .get_by_role("button", name=tab)
            .click()
        )
        await expect(page.locator(".panel").first).to_be_visible()
        await accessible(page, rules)


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
