"""Other answers and other questions: each is a branch, and each branch remembers where it ended."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Locator, expect

from tests.web.person import LONG, LONG_TOO, SHORT, Person, versions

pytestmark = pytest.mark.anyio


async def _step(message: Locator, name: str) -> None:
    await versions(message).get_by_role("button", name=name).click()


async def test_an_edited_question_is_a_branch_and_both_remember_their_ends(person: Person) -> None:
    """S-24, S-25, S-26: nothing is lost below the old one, and nothing is shown below it either."""
    await person.open()
    await person.ask_and_read(SHORT)
    await person.ask_and_read("Say goodbye.")
    first = person.questions.first
    await first.get_by_role("button", name="Edit and send again").click()
    editor = person.page.locator(".is-editing textarea")
    await expect(editor).to_have_value(SHORT)
    await expect(editor).to_be_focused()  # the page puts the cursor there, or into what is typed
    await editor.fill("Name three fruits.")
    await editor.press("Enter")
    # The new branch is there before the first word.
    await expect(person.questions.locator(".bubble")).to_have_text("Name three fruits.")
    await expect(versions(first)).to_have_text("2/2")
    await expect(person.replies).to_have_count(1)
    await person.ended()
    await person.matches_store()

    await _step(person.questions.first, "Version before")
    bubbles = person.questions.locator(".bubble")
    await expect(bubbles).to_have_text([SHORT, "Say goodbye."])
    await expect(person.replies).to_have_count(2)
    await _step(person.questions.first, "Next version")
    await expect(bubbles).to_have_text(["Name three fruits."])
    parents = [m["parent"] for m in person.stored() if m["role"] == "user"]
    assert parents[0] is None
    assert parents[2] is None
    assert parents[1] is not None


async def test_a_branch_that_is_chosen_is_the_one_that_other_devices_open(
    person: Person, chromium: Browser
) -> None:
    """S-28, S-29."""
    await person.open()
    await person.ask_and_read(SHORT)
    await person.last.get_by_role("button", name="Answer again").click()
    await expect(versions(person.last)).to_have_text("2/2")
    await person.ended()
    async with person.page.expect_response("**/head"):
        await _step(person.last, "Version before")
    other = await chromium.new_context(storage_state=await person.context.storage_state())
    page = await other.new_page()
    await page.goto(person.page.url)
    await expect(versions(page.locator(".message.reply").last)).to_have_text("1/2")
    # A further answer made there does not move who reads here; it is counted.
    await page.get_by_role("button", name="Answer again").click()
    await expect(versions(page.locator(".message.reply").last)).to_have_text("3/3")
    await person.page.wait_for_function(
        """() => dispatchEvent(new Event('focus'))
        && document.querySelector('.reply .branches')?.innerText.includes('1/3')"""
    )
    await other.close()


async def test_a_stop_ends_the_answer_on_screen_and_no_other(person: Person) -> None:
    """S-18."""
    await person.has_plan("plus")
    await person.open()
    await person.ask_and_read(SHORT)
    await person.ask(LONG)
    await person.talking()
    await _edit(person.questions.first, LONG_TOO)
    await expect(person.questions.locator(".bubble")).to_have_text([LONG_TOO])
    await person.talking(1)
    await _step(person.questions.first, "Version before")
    await expect(person.questions.locator(".bubble")).to_have_text([SHORT, LONG])
    await person.stop()
    await expect(person.last.get_by_text("Stopped.")).to_be_visible()
    await _step(person.questions.first, "Next version")
    await expect(person.questions.locator(".bubble")).to_have_text([LONG_TOO])
    await person.talking(len(await person.shown()) + 25)
    ends = [m["status"] for m in person.stored() if m["role"] == "assistant"]
    assert ends == ["completed", "stopped", "running"]
    await person.stop()
    await person.matches_store()


async def test_a_question_that_is_edited_while_it_is_answered_stops_that_answer(
    person: Person,
) -> None:
    await person.open()
    await person.ask(LONG)
    await person.talking()
    await _edit(person.questions.first, SHORT)
    await expect(person.questions.locator(".bubble")).to_have_text([SHORT])
    await expect(versions(person.questions.first)).to_have_text("2/2")
    await person.ended()
    await person.matches_store()
    ends = [m["status"] for m in person.stored() if m["role"] == "assistant"]
    assert ends == ["stopped", "completed"]


async def _edit(question: Locator, text: str) -> None:
    await question.get_by_role("button", name="Edit and send again").click()
    editor = question.page.locator(".is-editing textarea")
    await editor.fill(text)
    await editor.press("Enter")


async def test_a_branch_left_in_mid_answer_goes_on(person: Person) -> None:
    """S-24."""
    await person.open()
    await person.ask_and_read(SHORT)
    await person.last.get_by_role("button", name="Answer again").click()
    await expect(versions(person.last)).to_have_text("2/2")
    await person.ended()
    await person.ask(LONG_TOO)
    await expect(person.questions).to_have_count(2)
    await person.talking()
    await _step(person.replies.first, "Version before")
    await expect(person.replies).to_have_count(1)
    await _step(person.replies.first, "Next version")
    await expect(person.replies).to_have_count(2)
    await person.ended()
    await person.matches_store()
