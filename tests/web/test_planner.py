"""The planner: what is moved is computed by the gateway, and a plan is tried and left."""

from __future__ import annotations

import pytest
from playwright.async_api import Locator, expect

from tests.web.person import Person

pytestmark = pytest.mark.anyio


def tile(person: Person, name: str) -> Locator:
    return person.page.locator(".tiles > div", has_text=name).locator("dd").first


async def test_a_plan_follows_its_sliders_and_is_tried(person: Person) -> None:
    await person.becomes_administrator()
    page = person.page
    await page.goto(person.url + "/operations")
    await page.get_by_role("button", name="Planner").click()
    await expect(tile(person, "Replicas")).to_have_text("2")
    people = page.get_by_role("slider", name="People who use it on a day")
    await expect(people).to_have_attribute("aria-valuetext", "10,000")
    await people.focus()
    await people.press("End")
    await expect(people).to_have_attribute("aria-valuetext", "100,000,000")
    await expect(tile(person, "Messages a second at the peak")).to_have_text("34,722")
    await expect(page.locator(".chart canvas")).to_have_count(3)
    # The gateway's own sentence, and the plan before it is still there.
    each = page.get_by_role("group", name="Large model").get_by_label("Accelerators each")
    await each.select_option("1")
    await expect(page.get_by_role("alert")).to_contain_text("leave no room for a KV cache")
    await each.select_option("4")
    await expect(page.get_by_role("alert")).to_have_count(0)
    await page.get_by_role("checkbox", name="The ladder may act on free ones").uncheck()
    await page.get_by_role("button", name="Play it").click()
    rows = page.get_by_role("region", name="Trials").locator("tbody tr")
    await expect(rows).to_have_count(2)
    await expect(rows.first).to_contain_text("without: The ladder may act on free ones")
    await expect(page.locator(".chart canvas")).to_have_count(6)


async def test_who_leaves_the_planner_ends_what_is_played(person: Person) -> None:
    await person.becomes_administrator()
    page = person.page
    await page.goto(person.url + "/operations")
    await page.get_by_role("button", name="Planner").click()
    await page.get_by_role("button", name="Play it").click()
    await expect(page.get_by_role("progressbar", name="Played so far")).to_be_visible()
    async with page.expect_event("requestfailed", lambda one: one.url.endswith("/simulation")):
        await page.get_by_role("button", name="Safety").click()
    await page.get_by_role("button", name="Planner").click()
    await expect(page.get_by_role("button", name="Play it")).to_be_visible()
    await expect(page.get_by_role("region", name="Trials")).to_have_count(0)
