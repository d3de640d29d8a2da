"""The page over the real engine: what it is told to stop stops there, and its end costs no word."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.e2e.processes import Service
from tests.web.person import LONG, SHORT, Person, engine_ends, versions

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


@pytest.fixture
def service(engine_service: Service) -> Service:
    """For all tests of this file."""
    return engine_service


async def test_a_stopped_answer_keeps_its_words_and_frees_the_engine(person: Person) -> None:
    """S-13, S-17."""
    await person.open()
    await person.ask(LONG)
    begun = await person.talking()
    await _stop(person)
    await expect(person.last.get_by_text("Stopped.")).to_be_visible()
    assert await engine_ends(person.service, person.stored()[-1]["id"]) == {"abort"}
    assert (await person.shown()).startswith(begun[:20])
    kept = await person.matches_store()
    assert person.stored()[-1]["status"] == "stopped"
    # It is still the same after the next turn.
    await person.ask_and_read(SHORT)
    assert await person.copied(person.replies.first) == kept
    assert [m["content"] for m in person.stored() if m["status"] == "stopped"] == [kept]


async def test_a_stop_before_the_first_word_stops(person: Person) -> None:
    await person.open()
    # Stored, so that the stop is not told to ask again; one that is quicker is in `test_composer`.
    async with person.page.expect_response(
        lambda answer: answer.url.endswith("/messages") and answer.request.method == "POST"
    ):
        await person.ask(LONG)
    await _stop(person)
    await expect(person.page.get_by_role("button", name="Send", exact=True)).to_be_visible()
    (reply,) = [m for m in person.stored() if m["role"] == "assistant"]
    assert reply["status"] == "stopped"
    # It may not have come as far as the engine.
    assert await engine_ends(person.service, reply["id"]) <= {"abort"}
    await person.page.reload()
    await expect(person.last.get_by_text("Stopped")).to_be_visible()
    assert len(await person.shown()) < 80


async def test_an_engine_killed_in_mid_answer_costs_no_word(person: Person) -> None:
    await person.open()
    await person.ask(LONG)
    begun = await person.talking()
    assert person.service.kill("engine")
    assert await person.still_talking()
    await person.lost_nothing(begun)


async def test_another_answer_stands_beside_the_first_one(person: Person) -> None:
    """A fake would say the same again."""
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


async def _stop(person: Person) -> None:
    """Stops, and waits for the service's word that the engine has let go."""
    async with person.page.expect_response("**/stop") as answer:
        await person.page.get_by_role("button", name="Stop the answer").click()
    assert (await answer.value).status == 200
