"""Coming in: by the link that the terminal prints, or by name and password."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, expect

from tests.web.person import SHORT, Person, profile

pytestmark = pytest.mark.anyio


async def test_the_printed_link_signs_in_once(stranger: Person, chromium: Browser) -> None:
    log = stranger.service.program.log.read_text()
    link = re.findall(r"\S+/#signin=\S+", log)[-1]
    await stranger.page.goto(link)
    await expect(stranger.box).to_be_visible()
    assert stranger.page.url == stranger.url + "/"
    assert await stranger.page.evaluate("() => location.hash") == ""
    await stranger.page.reload()
    await expect(stranger.box).to_be_visible()

    second = await profile(chromium)
    try:
        page = await second.new_page()
        await page.goto(link)
        await expect(page.get_by_role("alert")).to_contain_text("has been used")
        assert await page.evaluate("() => location.hash") == ""
    finally:
        await second.close()


async def test_a_new_account_signs_out_and_in_and_finds_its_conversation(
    stranger: Person,
) -> None:
    page, password = stranger.page, "five-quiet-herons"
    await page.goto(stranger.url)
    await page.get_by_role("button", name="Make an account").click()
    await page.get_by_label("Name").fill(stranger.name)
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Make the account").click()
    await expect(stranger.box).to_be_visible()
    await stranger.ask(SHORT)
    await stranger.ended()
    words = await stranger.copied(stranger.last)

    await page.get_by_role("button", name=stranger.name).click()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    await page.get_by_label("Name").fill(stranger.name)
    await page.get_by_label("Password").fill("not-" + password)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_have_text("Name or password is not right.")
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Sign in").click()
    await page.locator(".entry a").first.click()
    await stranger.ended()
    assert await stranger.copied(stranger.last) == words
