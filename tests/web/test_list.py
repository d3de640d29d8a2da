"""The list at the side: long, searched, and what a person does to a conversation from it."""

from __future__ import annotations

import pytest
from playwright.async_api import Locator, expect

from tests.web.person import LONG, SHORT, Person

pytestmark = pytest.mark.anyio

MANY = 2_500  # 15,000 were tried as well: six times as many pages, and no more elements
MOST_DRAWN = 60
# Scrolls a window at a time, as fast as pages come, and says where it came to rest.
TO_THE_END = """async (last) => {
  const list = document.querySelector('.list');
  let most = 0;
  for (let calm = 0; calm < 600;) {
    const before = list.scrollTop;
    list.scrollTop += 20000;
    await new Promise((resolve) => requestAnimationFrame(resolve));
    most = Math.max(most, list.querySelectorAll('.entry').length);
    if ([...list.querySelectorAll('.entry-title')].at(-1)?.textContent === last) return most;
    calm = list.scrollTop === before ? calm + 1 : 0;
  }
  return -most;
}"""


def entry(person: Person, title: str) -> Locator:
    return person.page.locator(".entry", has=person.page.get_by_text(title, exact=True))


async def pick(person: Person, title: str, what: str) -> None:
    """Chooses from a conversation's menu."""
    row = entry(person, title)
    await row.hover()
    await row.get_by_role("button", name="Options of").click()
    await row.get_by_role("menuitem", name=what).click()


async def test_thousands_of_conversations_scroll_to_the_last_with_few_of_them_drawn(
    person: Person,
) -> None:
    """S-52. 25 pages are fetched on the way, which takes a few seconds."""
    await person.copies(await person.plant(SHORT, "Hello."), MANY)
    await person.open()
    await expect(person.page.locator(".entry").first).to_be_visible()
    drawn = await person.page.evaluate(TO_THE_END, f"Copy {MANY}")
    assert 0 < drawn <= MOST_DRAWN
    await entry(person, f"Copy {MANY}").locator("a").click()
    assert person.conversation == f"c_{MANY:026d}"
    await expect(entry(person, f"Copy {MANY}").locator("a")).to_have_attribute(
        "aria-current", "page"
    )
    await entry(person, f"Copy {MANY}").locator("a").focus()
    await person.page.keyboard.press("Home")
    await expect(person.page.locator(".entry a").first).to_be_focused()
    await person.page.keyboard.press("ArrowDown")
    await expect(entry(person, "Copy 1").locator("a")).to_be_focused()


async def test_a_search_shows_where_the_words_are_and_escape_ends_it(person: Person) -> None:
    found = await person.plant(SHORT, "Hello.")
    await person.titled(found, "Greetings")
    await person.copies(found, 3)
    await person.open()
    await person.page.keyboard.press("Control+k")
    await person.page.keyboard.type("hello")
    await expect(person.page.locator(".entry")).to_have_count(1)
    await expect(person.page.locator(".entry mark")).to_have_text("hello")
    await person.page.keyboard.press("ArrowDown")
    await person.page.keyboard.press("Enter")
    await expect(person.questions).to_have_count(1)
    assert person.conversation == found
    await person.page.locator("#search").fill("no such words")
    await expect(person.page.locator(".list-note")).to_contain_text("Nothing found")
    await person.page.locator("#search").press("Escape")
    await expect(person.page.locator(".entry")).to_have_count(4)


async def test_what_is_archived_is_out_of_the_way_and_not_gone(person: Person) -> None:
    await person.copies(await person.plant(SHORT, "Hello."), 2)
    await person.open()
    await pick(person, "Copy 1", "Archive")
    await expect(entry(person, "Copy 1")).to_have_count(0)
    await person.page.get_by_role("button", name="Archive", exact=True).click()
    await expect(person.page.locator(".entry")).to_have_count(1)
    await pick(person, "Copy 1", "Take out of the archive")
    await expect(person.page.locator(".list-note")).to_contain_text("Nothing is archived")
    await person.page.get_by_role("button", name="Back to your chats").click()
    await expect(entry(person, "Copy 1")).to_have_count(1)


async def test_a_deletion_can_be_undone_and_is_done_when_the_page_is_left(person: Person) -> None:
    await person.copies(await person.plant(SHORT, "Hello."), 2)
    await person.open()
    await person.has_time_to_undo()
    for title in ("Copy 1", "Copy 2"):
        await pick(person, title, "Delete")
    await expect(person.page.locator(".entry")).to_have_count(1)
    assert person.count("conversations") == 3
    await person.page.locator("h1").click()
    await person.page.keyboard.press("Control+z")
    await expect(entry(person, "Copy 2")).to_have_count(1)
    await person.page.goto("about:blank")
    await person.until_stored("conversations", 2)
    await person.open()
    await expect(person.page.locator(".entry")).to_have_count(2)
    await expect(entry(person, "Copy 1")).to_have_count(0)


async def test_an_answer_that_ended_elsewhere_is_marked_until_it_is_read(person: Person) -> None:
    other = await person.plant(SHORT, "Hello.")
    await person.has_plan("plus")
    await person.open()
    await person.ask(LONG)
    await person.talking()
    running = person.conversation
    row = person.page.locator(".entry", has=person.page.locator(f"[data-id={running}]"))
    await expect(row.get_by_role("img", name="Answering")).to_be_visible()
    await person.page.locator(f"[data-id={other}]").click()
    await person.quiet()
    await expect(row.get_by_role("img", name="New answer")).to_be_visible()
    await expect(row.get_by_role("img", name="Answering")).to_have_count(0)
    await person.page.locator(f"[data-id={running}]").click()
    await expect(row.get_by_role("img", name="New answer")).to_have_count(0)
