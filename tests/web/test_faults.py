"""What becomes of an answer whose replica breaks, has no room, or is quicker than its readers.

Over the fake: no model fails at a certain word, stands still or answers at once when it is told to.
"""

from __future__ import annotations

import asyncio
import json
import secrets

import pytest
from playwright.async_api import expect

from tertulia.drills.loopback import loopback
from tests.e2e.processes import Service
from tests.web.person import LONG, PATIENCE_MS, SLOW_S, STEP_S, Person, versions
from tests.web.states import full_slots

pytestmark = pytest.mark.anyio

# It fails with words said, and in all tries to go on, of which there are three.
BREAKS: list[dict[str, object]] = [{"do": "error", "after": after} for after in (60, 0, 0, 0)]
MANY = 7  # answers at once
MOST_BEHIND = 3  # that the page follows behind the conversation on screen
TITLES = 4  # what else may ask the fake meanwhile and take a fault away: titles of other tests


@pytest.fixture
def service(fake_service: Service) -> Service:
    """For all tests of this file."""
    return fake_service


async def test_an_answer_that_breaks_off_for_good_keeps_its_words_and_is_tried_again(
    person: Person,
) -> None:
    """S-05."""
    await person.open()
    await _break(person.service, [*BREAKS, *BREAKS[-1:] * TITLES])
    await person.ask(LONG)
    note = person.last.get_by_role("note")
    await expect(note).to_contain_text("could not be continued")
    assert len(await person.matches_store()) > 25
    assert person.stored()[-1]["status"] == "failed"
    assert person.service.kill("engine")  # the next one knows of no fault
    await note.get_by_role("button", name="Try again").click()
    await expect(versions(person.last)).to_have_text("2/2")
    await person.ended()
    assert person.stored()[-1]["status"] == "completed"


async def test_an_answer_that_nobody_can_go_on_with_is_no_spinner_the_next_day(
    person: Person,
) -> None:
    """S-06: everything dies, and the replica that comes back fails as well."""
    await person.open()
    await person.ask(LONG)
    begun = await person.talking()
    conversation = person.conversation
    await person.page.goto("about:blank")
    fake = person.service.fake
    assert fake is not None
    refusing = ["--faults", json.dumps([{"do": "error"}] * (len(BREAKS) + TITLES))]
    fake.command += refusing
    try:
        person.service.kill("tree")
        await person.service.ready()
        await person.open(conversation)
        await expect(person.last).to_have_attribute("aria-busy", "false")
        await expect(person.last.get_by_role("button", name="Try again")).to_be_visible()
        assert (await person.matches_store()).startswith(begun[:20])
        assert person.stored()[-1]["status"] == "failed"
    finally:
        del fake.command[-len(refusing) :]
        person.service.kill("engine")


async def test_a_page_with_many_running_answers_leaves_room_for_its_own_calls(
    person: Person,
) -> None:
    """A browser opens six connections to a server; a stream is one of them all the time."""
    await person.service.pace(SLOW_S)
    for _ in range(MANY):
        await _ask_elsewhere(person)
    await person.open()
    await expect(person.page.locator(".entry .running")).to_have_count(MANY)
    async with asyncio.timeout(PATIENCE_MS / 1000):
        while True:
            if _streams(person) >= MOST_BEHIND:
                break
            await asyncio.sleep(0.05)
    for _ in range(3):  # whatever was to come has come when calls after it are answered
        await person.page.evaluate("() => fetch('/v1/me').then((answer) => answer.text())")
    assert _streams(person) == MOST_BEHIND


async def test_a_stop_in_the_queue_stops_and_the_replica_never_hears_of_it(person: Person) -> None:
    """S-12."""
    async with full_slots(person.service):
        await person.open()
        await person.write("And what do herons eat?")
        await person.box.press("Enter")
        await expect(person.page.locator(".waiting")).to_contain_text("line")
        await person.stop()
        await expect(person.last.get_by_text("Stopped before the first word.")).to_be_visible()
        reply = person.stored()[-1]
        assert (reply["status"], reply["content"]) == ("stopped", "")
        assert person.charged(reply["id"]) == (0, 0)
    async with loopback(5) as http:
        log = (await http.get(f"http://127.0.0.1:{person.service.fake_port}/log")).json()
    assert [one for one in log if one["request_id"].startswith(reply["id"])] == []


async def test_an_answer_that_is_there_before_the_page_reads_loses_no_first_word(
    person: Person,
) -> None:
    """S-04."""
    await person.open()
    await person.service.pace(0)
    for n in range(1, 6):
        await person.write(f"Name {n} fruits.")
        await person.box.press("Enter")
        await expect(person.replies).to_have_count(n)
        await expect(person.last).to_have_attribute("aria-busy", "false")
        assert await person.copied(person.last) == person.stored()[-1]["content"]
    await person.service.pace(STEP_S)


async def _break(service: Service, faults: list[dict[str, object]]) -> None:
    """What goes wrong in the next generations, one after the other."""
    async with loopback(5) as http:
        told = await http.post(f"http://127.0.0.1:{service.fake_port}/faults", json=faults)
        assert told.json()["waiting"] >= len(faults)


async def _ask_elsewhere(person: Person) -> None:
    """A question of theirs in a conversation of its own, from another device."""
    http, url = person.context.request, person.service.url
    ours = {"Origin": url, "Accept": "application/json"}
    made = await http.post(f"{url}/v1/conversations", data={"title": "Elsewhere"}, headers=ours)
    assert made.ok, await made.text()
    place = f"{url}/v1/conversations/{(await made.json())['id']}/messages"
    key = {**ours, "Idempotency-Key": secrets.token_hex(8)}
    asked = await http.post(place, data={"content": LONG}, headers=key)
    assert asked.status == 202, await asked.text()


def _streams(person: Person) -> int:
    """How many the page has opened."""
    return sum("/stream" in address for address in person.addresses)
