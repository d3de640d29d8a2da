"""A link: made on the page, read in a browser that nobody is signed in to, and taken back."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, expect

from tests.web.person import SHORT, Person, profile

pytestmark = pytest.mark.anyio


async def test_a_link_is_made_read_without_an_account_and_taken_back(
    person: Person, chromium: Browser
) -> None:
    await person.open()
    await person.ask_and_read(SHORT)
    answer = await person.last.locator(".prose").inner_text()
    header = person.page.locator(".chat-head")
    await header.get_by_role("button", name="Options of").click()
    await header.get_by_role("menuitem", name="Share").click()
    dialog = person.page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Make a link").click()
    link = await dialog.get_by_label("The link").input_value()
    assert link.startswith(f"{person.url}/s/")

    context = await profile(chromium)
    reader = await context.new_page()
    asked: list[str] = []
    reader.on("request", lambda request: asked.append(request.url))
    await reader.goto(link)
    await expect(reader.locator(".message.question .bubble")).to_have_text(SHORT)
    await expect(reader.locator(".message.reply .prose")).to_have_text(answer, use_inner_text=True)
    await expect(reader.locator(".composer-text")).to_have_count(0)
    await expect(reader.locator("body")).not_to_contain_text(person.name)
    assert not any("/v1/me" in address or "/v1/conversations" in address for address in asked)

    await dialog.get_by_role("button", name="Take this link back").click()
    await expect(dialog.get_by_role("button", name="Take this link back")).to_have_count(0)
    await reader.reload()
    await expect(reader.get_by_role("heading")).to_have_text("There is nothing behind this link")
    await context.close()
