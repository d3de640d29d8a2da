"""A temporary chat: it goes on like any other, and neither the service nor the browser keeps it."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.web.person import SHORT, Person

pytestmark = pytest.mark.anyio


async def test_a_temporary_chat_goes_on_and_is_kept_nowhere(person: Person) -> None:
    """S-48."""
    await person.open()
    switch = person.page.get_by_role("button", name="Temporary chat")
    await switch.click()
    await expect(switch).to_have_attribute("aria-pressed", "true")
    await person.ask(SHORT)
    await person.ended()
    await person.ask("Say goodbye.")
    await expect(person.replies).to_have_count(2)
    await person.ended()
    await expect(person.questions.locator(".bubble")).to_have_text([SHORT, "Say goodbye."])
    assert person.page.url == f"{person.url}/"
    assert (person.count("conversations"), person.count("messages")) == (0, 0)
    await expect(person.page.locator(".entry")).to_have_count(0)
    storage = await person.page.evaluate("JSON.stringify({...localStorage, ...sessionStorage})")
    assert SHORT not in storage

    await person.page.reload()
    await expect(person.box).to_be_visible()
    await expect(person.page.locator(".message")).to_have_count(0)
