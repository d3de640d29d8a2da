"""A reply on the screen is the reply in the store: after reloads, switches, tabs, dead lines."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Request, expect

from tertulia.drills.loopback import loopback
from tests.web.line import line_to
from tests.web.person import LONG, LONG_TOO, PATIENCE_MS, SHORT, Person

pytestmark = pytest.mark.anyio


async def test_an_answer_streams_onto_the_screen_and_ends(person: Person) -> None:
    await person.open()
    await person.ask(LONG)
    begun = await person.talking()
    await person.ended()
    assert (await person.shown()).startswith(begun[:20])
    assert len(await person.matches_store()) > len(begun)
    assert [m["status"] for m in person.stored()] == ["completed", "completed"]


async def test_a_reload_in_mid_answer_begins_at_the_first_word(person: Person) -> None:
    """S-01."""
    await person.open()
    await person.ask(LONG)
    begun = await person.talking()
    await person.page.reload()
    # On a busy machine it may have ended meanwhile.
    await expect(person.last.locator(".prose")).to_contain_text(begun[:20])
    assert (await person.shown())[:20] == begun[:20]
    await person.ended()
    await person.matches_store()
    await expect(person.replies).to_have_count(1)


async def test_a_switch_of_conversation_in_mid_answer_and_back_loses_nothing(
    person: Person,
) -> None:
    """S-08, S-09."""
    await person.open()
    await person.ask(LONG)
    begun = await person.talking()
    first = person.conversation
    await person.page.get_by_role("button", name="New chat").click()
    await person.ask("Name three fruits.")
    # The two are under way at once.
    await expect(person.last.locator(".prose")).not_to_be_empty()
    second = person.conversation
    assert second != first
    await person.page.go_back()
    await expect(person.questions.locator(".bubble")).to_have_text(LONG)
    assert person.conversation == first
    assert (await person.shown()).startswith(begun[:20])
    await person.ended()
    await person.matches_store()
    await person.page.locator(f'a[href="/c/{second}"]').click()
    await expect(person.questions.locator(".bubble")).to_have_text("Name three fruits.")
    await person.ended()
    await person.matches_store()


async def test_a_second_tab_shows_the_same_running_answer_once(person: Person) -> None:
    """S-02."""
    await person.open()
    await person.ask_and_read(LONG)
    await person.ask(LONG_TOO)
    await expect(person.replies).to_have_count(2)
    await person.talking()
    other = await person.tab()
    await other.open(person.conversation)
    await other.talking()
    assert await person.still_talking()
    for tab in (person, other):
        await tab.ended()
        await expect(tab.replies).to_have_count(2)
        await expect(tab.questions).to_have_count(2)
    assert await other.copied(other.last) == await person.copied(person.last)
    assert await other.copied(other.replies.first) == await person.copied(person.replies.first)
    await person.matches_store()


async def test_tabs_share_one_connection_and_one_goes_on_when_the_other_closes(
    person: Person,
) -> None:
    await person.has_plan("plus")
    await person.open()
    await person.ask(LONG)
    begun = await person.talking()
    other = await person.tab()
    await other.open(person.conversation)
    assert (await other.talking())[:20] == begun[:20]
    # On a busy machine both may read for a moment; then one of them gives way.
    await _open_streams(person, 1)
    assert await other.still_talking()
    await person.page.close()
    seen = await other.shown()
    await _open_streams(person, 1)
    await other.talking(len(seen) + 25)  # it goes on
    await other.stop()
    assert (await other.matches_store()).startswith(begun[:20])
    await _open_streams(person, 0)


async def _open_streams(person: Person, count: int) -> None:
    """Waits until the gateway has so many."""
    headers = {"Authorization": f"Bearer {person.service.key}"}
    async with asyncio.timeout(PATIENCE_MS / 1000), loopback(20, headers=headers) as http:
        while True:
            told = (await http.get(f"{person.service.url}/metrics")).text
            if f"tertulia_open_streams {count}.0\n" in told:
                return
            await asyncio.sleep(0.02)


async def test_an_answer_elsewhere_goes_on_after_a_reload(person: Person) -> None:
    """Nobody would follow it, and it would be stopped, if the page did not."""
    await person.has_plan("plus")
    await person.open()
    await person.ask(LONG)
    begun = await person.talking()
    first = person.conversation
    async with person.page.expect_request("**/stream*"):
        await person.page.goto(person.url)
    await person.page.locator(f'a[href="/c/{first}"]').click()
    assert (await person.talking())[:20] == begun[:20]
    await person.stop()
    await person.matches_store()
    await expect(person.replies).to_have_count(1)


async def test_an_answer_that_has_ended_is_read_and_not_followed(person: Person) -> None:
    """There is no connection that stays open while nothing runs."""
    await person.open()
    await person.ask_and_read(SHORT)
    person.addresses.clear()
    await person.page.reload()
    await person.ended()
    await person.matches_store()
    assert [one for one in person.addresses if one.endswith("/stream")] == []
    await _open_streams(person, 0)


async def test_an_open_tab_follows_the_next_turn_that_another_one_asks_for(person: Person) -> None:
    """S-03: its numbers begin at 1 again."""
    await person.open()
    await person.ask_and_read(SHORT)
    other = await person.tab()
    await other.open(person.conversation)
    await expect(other.replies).to_have_count(1)
    await person.ask_and_read("Say goodbye.")
    await expect(other.replies).to_have_count(2)
    await other.ended()
    await expect(other.questions).to_have_count(2)
    await other.matches_store()


async def test_a_dead_network_in_mid_answer_costs_no_word_and_none_is_sent_again(
    person: Person,
) -> None:
    """S-53: a resume names the last event that the page has."""
    resumed: list[Request] = []
    person.page.on("request", lambda one: resumed.append(one) if "/stream" in one.url else None)
    async with line_to(person.service.port) as line:
        person.url = line.url
        await person.open()
        await person.ask(LONG)
        await person.talking()
        async with person.never_shrinking():
            line.cut()
            await person.context.set_offline(True)
            await expect(person.page.get_by_text("Connection lost")).to_be_visible()
            line.mend()
            await person.context.set_offline(False)
            await person.ended()
        assert resumed != []
        assert all(int(one.headers["last-event-id"]) > 1 for one in resumed)
        await person.matches_store()


async def test_a_message_sent_without_network_is_sent_once_when_it_is_back(person: Person) -> None:
    await person.open()
    await person.context.set_offline(True)
    await person.ask(SHORT)
    await expect(person.questions).to_have_count(1)
    assert person.count("messages") == 0
    await person.context.set_offline(False)
    await expect(person.last).to_have_attribute("aria-busy", "false")
    await person.matches_store()
    assert (person.count("conversations"), person.count("messages")) == (1, 2)
