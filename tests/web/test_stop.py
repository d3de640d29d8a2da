"""Stop: the words so far stay, nothing grows back, and the engine is free."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.web.person import LONG, Person, engine_figures

pytestmark = pytest.mark.anyio
IDLE = {"num_requests_running": 0.0, "num_requests_waiting": 0.0}


async def test_a_stopped_answer_keeps_its_words_and_frees_the_engine(person: Person) -> None:
    await person.open()
    await person.ask(LONG)
    begun = await person.talking()
    await _stop(person)
    await expect(person.last.get_by_text("Stopped.")).to_be_visible()
    assert await engine_figures(person.service) == IDLE
    assert (await person.shown()).startswith(begun[:20])
    kept = await person.matches_store()
    assert person.stored()[-1]["status"] == "stopped"
    # It is still the same after the next turn.
    await person.ask_and_read("Say hello.")
    assert await person.copied(person.replies.first) == kept
    assert [m["content"] for m in person.stored() if m["status"] == "stopped"] == [kept]


async def test_a_stop_before_the_first_word_stops(person: Person) -> None:
    await person.open()
    # Stored, or there would be nothing to stop yet: no person is quicker than that, a test may be.
    async with person.page.expect_response(
        lambda answer: answer.url.endswith("/messages") and answer.request.method == "POST"
    ):
        await person.ask(LONG)
    await _stop(person)
    await expect(person.page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    assert await engine_figures(person.service) == IDLE
    replies = [m for m in person.stored() if m["role"] == "assistant"]
    assert [m["status"] for m in replies] == ["stopped"]
    await person.page.reload()
    await expect(person.last.get_by_text("Stopped")).to_be_visible()
    assert len(await person.shown()) < 80


async def _stop(person: Person) -> None:
    """Stops, and waits for the service's word that the engine has let go."""
    async with person.page.expect_response("**/stop") as answer:
        await person.page.get_by_role("button", name="Stop the answer").click()
    assert (await answer.value).status == 200
