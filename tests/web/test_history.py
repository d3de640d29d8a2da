"""Long conversations: the newest messages at once, the older ones upwards, and nothing moves."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.web.person import Person

pytestmark = pytest.mark.anyio

MESSAGES = 5_000
PAGE = 50
# Scrolls up to where older messages are fetched, and notes how far the topmost message in sight
# moves from frame to frame until they are there.
_READ_UP = """async (count) => {
  const thread = document.querySelector('.thread');
  const box = thread.getBoundingClientRect();
  thread.scrollTop = 1500;
  const frame = () => new Promise(requestAnimationFrame);
  await frame(); await frame();
  thread.scrollTop = 300;
  await frame(); await frame();
  const seen = document.elementFromPoint(box.left + box.width / 2, box.top + 40).closest('.message')
    ?? document.querySelector('.message');
  const tops = [];
  while (document.querySelectorAll('.message').length < count) {
    tops.push(seen.getBoundingClientRect().top);
    await frame();
  }
  for (let i = 0; i < 5; i++) {
    tops.push(seen.getBoundingClientRect().top);
    await frame();
  }
  return Math.max(...tops) - Math.min(...tops);
}"""
_NUMBERS = """() => [...document.querySelectorAll('.bubble, .prose')]
  .map((one) => Number(/Message (\\d+)/.exec(one.textContent)[1]))"""


async def test_five_thousand_messages_open_at_the_newest_and_are_read_upwards_without_jumps(
    person: Person,
) -> None:
    conversation = await person.plant("Message 1", "Message 2")
    person.lengthen(conversation, MESSAGES)
    asked: list[str] = []
    person.page.on(
        "request", lambda one: asked.append(one.url) if "/messages?" in one.url else None
    )
    await person.open(conversation)
    await expect(person.page.locator(".message")).to_have_count(PAGE)
    await expect(person.last.locator(".prose")).to_be_in_viewport()
    await expect(person.page.locator(".is-plain")).to_have_count(0)
    assert len(asked) == 1
    for pages in (2, 3, 4):
        moved = await person.page.evaluate(_READ_UP, pages * PAGE)
        assert moved <= 1, f"{moved} pixels"
    assert await person.page.evaluate(_NUMBERS) == list(
        range(MESSAGES - 4 * PAGE + 1, MESSAGES + 1)
    )
    await person.page.get_by_role("button", name="To the newest message").click()
    await expect(person.last.locator(".prose")).to_be_in_viewport()
