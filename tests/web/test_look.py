"""The page for everybody: by keyboard alone, on a narrow phone, in the dark."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.web.person import SHORT, Person, versions

pytestmark = pytest.mark.anyio

MOST_TABS = 40
WIDE = (
    "Here is "
    + "averyverylongword" * 12
    + ".\n\n| one | two | three | four | five | six |\n|---|---|---|---|---|---|\n"
    + "| " + " | ".join(["some words in a cell"] * 6) + " |\n\n"
    + "```python\nx = '" + "code " * 60 + "'\n```\n\n"
    + "$$\\sum_{i=1}^{n} x_i + y_i + z_i + a_i + b_i + c_i + d_i + e_i + f_i + g_i + h_i$$\n\n"
    + "https://elsewhere.invalid/" + "path/" * 30 + "\n"
)  # fmt: skip


async def test_a_conversation_needs_no_mouse(person: Person) -> None:
    await person.open()
    keys = person.page.keyboard
    await _tab_to(person.page, "a.skip")
    await keys.press("Enter")
    await expect(person.box).to_be_focused()
    await keys.type(SHORT)
    await keys.press("Enter")
    await expect(person.replies).to_have_count(1)
    await person.ended()
    await _tab_to(person.page, "[aria-label='Answer again']", key="Shift+Tab")
    await keys.press("Enter")
    await expect(versions(person.last)).to_have_text("2/2")
    await _tab_to(person.page, ".round.is-stop, [aria-label='Answer again']")


async def test_a_phone_never_scrolls_sideways(person: Person) -> None:
    conversation = await person.plant("averyverylongword" * 20, WIDE)
    await person.page.set_viewport_size({"width": 360, "height": 740})
    await person.open(conversation)
    await expect(person.last.locator("math")).to_have_count(1)
    await _fits(person.page)
    await expect(person.page.get_by_role("button", name="Send", exact=True)).to_be_in_viewport(
        ratio=1
    )
    await person.page.get_by_role("button", name="Show conversations").click()
    await expect(person.page.get_by_role("button", name="New chat")).to_be_in_viewport(ratio=1)
    await _fits(person.page)
    await person.page.get_by_role("button", name=person.name).click()
    await expect(person.page.get_by_role("dialog")).to_be_in_viewport()
    await _fits(person.page)


async def test_the_page_follows_a_dark_system_and_the_choice_of_the_person(person: Person) -> None:
    await person.page.emulate_media(color_scheme="dark")
    await person.open(await person.plant(SHORT, "Hello."))
    await _until(person.page, ".chat", "backgroundColor", "< 60")
    await _until(person.page, ".prose p", "color", "> 180")
    theme = person.page.get_by_role("button", name="Colours:")
    await theme.click()
    await expect(theme).to_have_accessible_name("Colours: light")
    await _until(person.page, ".chat", "backgroundColor", "> 200")
    await person.page.reload()
    await expect(theme).to_have_accessible_name("Colours: light")


async def _tab_to(page: Page, selector: str, key: str = "Tab") -> None:
    for _ in range(MOST_TABS):
        await page.keyboard.press(key)
        if await page.evaluate("(s) => document.activeElement.matches(s)", selector):
            return
    pytest.fail(f"{MOST_TABS} times {key} did not reach {selector}")


async def _fits(page: Page) -> None:
    """Nothing scrolls sideways but the boxes made for it, and nothing is cut off at the edge."""
    sizes = await page.evaluate(
        """() => [document.documentElement, document.querySelector('.thread')]
        .map((one) => one.scrollWidth - one.clientWidth)"""
    )
    assert sizes == [0, 0]
    cut = await page.evaluate(
        """() => {
          const scrolls = (one) => ['auto', 'scroll'].includes(getComputedStyle(one).overflowX);
          const inBox = (one) => {
            for (let at = one.parentElement; at?.closest('.message'); at = at.parentElement) {
              if (scrolls(at)) return true;
            }
            return false;
          };
          return [...document.querySelectorAll('.message *')]
            .filter((one) => one.getBoundingClientRect().right > innerWidth && !inBox(one))
            .map((one) => one.outerHTML.slice(0, 80));
        }"""
    )
    assert cut == []


async def _until(page: Page, selector: str, style: str, brightness: str) -> None:
    """Waits for a brightness, 0 to 255, of the nearest element with a colour of its own."""
    await page.wait_for_function(
        """([selector, style]) => {
          const canvas = new OffscreenCanvas(1, 1).getContext('2d');
          for (let at = document.querySelector(selector); at !== null; at = at.parentElement) {
            const colour = getComputedStyle(at)[style];
            if (/, 0\\)$|\\/ 0\\)$|transparent/.test(colour)) continue;
            canvas.fillStyle = colour;
            canvas.fillRect(0, 0, 1, 1);
            const [red, green, blue] = canvas.getImageData(0, 0, 1, 1).data;
            return 0.3 * red + 0.6 * green + 0.1 * blue BRIGHTNESS;
          }
        }""".replace("BRIGHTNESS", brightness),
        arg=[selector, style],
    )
