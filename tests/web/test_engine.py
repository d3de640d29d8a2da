"""The page over the real engine: what it is told to stop stops there, and its end costs no word."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.web.line import line_to
from tests.web.person import LONG, SHORT, Person, engine_uses, versions

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


async def test_a_stopped_answer_keeps_its_words_and_frees_the_engine(person: Person) -> None:
    """S-11, S-13, S-15, S-16, S-17: charged for what was said, and no blank is stored."""
    await person.open()
    await person.ask(LONG)
    begun = await person.talking()
    await person.stop()
    await expect(person.last.get_by_text("Stopped.")).to_be_visible()
    (use,) = await engine_uses(person.service, person.stored()[-1]["id"])
    assert use["finish"] == "abort"
    read, made = person.charged(person.stored()[-1]["id"])
    assert read == use["prompt_tokens"]
    assert 0 < made <= use["completion_tokens"]  # what was made and not said yet is free
    assert (await person.shown()).startswith(begun[:20])
    kept = await person.matches_store()
    assert person.stored()[-1]["status"] == "stopped"
    # It is still the same after the next turn.
    await person.ask_and_read(SHORT)
    assert await person.copied(person.replies.first) == kept
    assert [m["content"] for m in person.stored() if m["status"] == "stopped"] == [kept]


async def test_a_stop_before_the_first_word_stops(person: Person) -> None:
    """S-12."""
    await person.open()
    # Stored, so that the stop is not told to ask again; one that is quicker is in `test_composer`.
    async with person.page.expect_response(
        lambda answer: answer.url.endswith("/messages") and answer.request.method == "POST"
    ):
        await person.ask(LONG)
    await person.stop()
    await expect(person.page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    (reply,) = [m for m in person.stored() if m["role"] == "assistant"]
    assert reply["status"] == "stopped"
    # It may not have come as far as the engine.
    assert {one["finish"] for one in await engine_uses(person.service, reply["id"])} <= {"abort"}
    await person.page.reload()
    await expect(person.last.get_by_text("Stopped")).to_be_visible()
    assert len(await person.shown()) < 80


async def test_an_engine_killed_in_mid_answer_costs_no_word(person: Person) -> None:
    """S-05: and nothing of what is on the screen goes away meanwhile."""
    await person.open()
    await person.ask(LONG)
    begun = await person.talking()
    async with person.never_shrinking():
        assert person.service.kill("engine")
        assert await person.still_talking()
        await person.ended()
    await person.lost_nothing(begun)


async def test_a_conversation_goes_on_after_a_turn_that_failed_before_its_first_word(
    person: Person,
) -> None:
    """S-27: the template of the model wants questions and answers to take turns."""
    why = '["no_replica", "There was nobody to answer.", true, null]'
    conversation = await person.plant(SHORT, "", status="failed", finish=None, failure=why)
    await person.open(conversation)
    await expect(person.last.get_by_role("note")).to_contain_text("There was nobody to answer.")
    await person.ask("Say goodbye.")
    await expect(person.replies).to_have_count(2)
    await person.ended()
    await person.matches_store()
    ends = [one["status"] for one in person.stored() if one["role"] == "assistant"]
    assert ends == ["failed", "completed"]


async def test_a_line_that_breaks_while_the_title_is_made_leaves_two_messages(
    person: Person,
) -> None:
    """S-07, S-23: what is made beside a conversation adds no message and moves no head."""
    async with line_to(person.service.port) as line:
        person.url = line.url
        await person.open()
        await person.ask_and_read(SHORT)
        line.cut()
        await person.until_titled()
        line.mend()
        await person.page.reload()
        await expect(person.questions.locator(".bubble")).to_have_text([SHORT])
        await person.ended()
        assert await person.copied(person.last) == person.stored()[-1]["content"]
        assert person.count("messages") == 2


async def test_another_answer_stands_beside_the_first_one(person: Person) -> None:
    await person.open()
    await person.ask_and_read(SHORT)
    first = await person.copied(person.last)
    await person.last.get_by_role("button", name="Answer again").click()
    await expect(versions(person.last)).to_have_text("2/2")
    await person.ended()
    await expect(person.replies).to_have_count(1)
    second = await person.matches_store()
    await versions(person.last).get_by_role("button", name="Version before").click()
    await expect(versions(person.last)).to_have_text("1/2")
    assert await person.copied(person.last) == first
    contents = [m["content"] for m in person.stored()]
    assert contents == [SHORT, first, second]
    await person.page.reload()
    await expect(versions(person.last)).to_have_text("1/2")
    assert await person.copied(person.last) == first
