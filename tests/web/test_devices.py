"""The same account at two devices: each sees what the other does, and neither wipes it."""

from __future__ import annotations

import secrets

import pytest
from playwright.async_api import Browser, expect

from tests.web.person import LONG, SHORT, Person

pytestmark = pytest.mark.anyio


async def test_a_second_device_shows_a_running_answer_from_its_first_word_and_stops_it(
    person: Person, chromium: Browser
) -> None:
    """S-02, S-14: another connection, and on it the stop of what this one asked for."""
    await person.has_plan("plus")
    await person.open()
    await person.ask(LONG)
    begun = await person.talking()
    async with person.device(chromium) as phone:
        await phone.open(person.conversation)
        assert (await phone.talking())[:20] == begun[:20]
        assert await person.still_talking()
        await phone.stop()
        for one in (phone, person):
            await expect(one.last.get_by_text("Stopped.")).to_be_visible()
            await expect(one.replies).to_have_count(1)
            await one.matches_store()


async def test_what_another_device_and_a_program_asked_is_there_once_after_a_look(
    person: Person, chromium: Browser
) -> None:
    """S-03, S-10, S-21: the program wants no stream, and its answer is stored and shown once."""
    await person.open()
    await person.ask_and_read(SHORT)
    async with person.device(chromium) as phone:
        await phone.open(person.conversation)
        await expect(phone.replies).to_have_count(1)
        await person.ask_and_read("Say goodbye.")
        await phone.sees(2)
        await phone.ended()
        asked = await phone.context.request.post(
            f"{person.url}/v1/conversations/{person.conversation}/messages",
            data={"content": "Name one fruit."},
            headers={
                "Sec-Fetch-Site": "same-origin",
                "Accept": "application/json",
                "Idempotency-Key": secrets.token_hex(8),
            },
        )
        assert asked.status == 202
        for one in (phone, person):
            await one.sees(3)
            await one.ended()
            await expect(one.replies).to_have_count(3)
            await expect(one.questions.locator(".bubble")).to_have_text(
                [SHORT, "Say goodbye.", "Name one fruit."]
            )
            await one.matches_store()


async def test_a_question_below_an_answer_of_another_device_waits_for_it(
    person: Person, chromium: Browser
) -> None:
    """S-22: there are never two answers below one message by accident."""
    await person.open(await person.plant(SHORT, "Hello."))
    async with person.device(chromium) as phone:
        await phone.open(person.conversation)
        await expect(phone.replies).to_have_count(1)
        await person.ask(LONG)
        await person.talking()
        await phone.ask("Name one fruit.")
        waiting = phone.page.get_by_label("Not sent yet")
        await expect(waiting.locator(".bubble")).to_have_text("Name one fruit.")
        await expect(phone.questions.locator(".bubble")).to_have_text([SHORT, LONG])
        await expect(phone.replies).to_have_count(3)
        await phone.ended()
        await expect(waiting).to_have_count(0)
        await phone.matches_store()
    parents = [message["parent"] for message in person.stored()]
    assert parents == [None, *[message["id"] for message in person.stored()][:-1]]


async def test_a_device_that_is_behind_changes_a_title_and_a_rating_and_nothing_else(
    person: Person, chromium: Browser
) -> None:
    """S-23, S-28: what it does not know of is still there, and is what opens."""
    await person.open(await person.plant(SHORT, "Hello."))
    async with person.device(chromium) as phone:
        await phone.open(person.conversation)
        await expect(phone.replies).to_have_count(1)
        await person.ask_and_read("Say goodbye.")
        before = person.stored()
        async with phone.page.expect_response("**/feedback"):
            await phone.last.get_by_role("button", name="Good answer").click()
        await phone.page.locator(".chat-head").get_by_role("button", name="Options of").click()
        await phone.page.get_by_role("menuitem", name="Rename").click()
        await phone.page.get_by_label("Title", exact=True).fill("A name of my own")
        async with phone.page.expect_response("**/v1/conversations/*"):
            await phone.page.keyboard.press("Enter")
        assert person.stored() == before
        await phone.page.reload()
        await expect(phone.replies).to_have_count(2)
        await expect(phone.page.locator("h1")).to_have_text("A name of my own")
        rated = phone.replies.first.get_by_role("button", name="Good answer")
        await expect(rated).to_have_attribute("aria-pressed", "true")
        await phone.matches_store()
