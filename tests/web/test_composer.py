"""Where a message is written: nothing is sent twice, by accident or to the wrong place, or lost."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Route, expect

from tertulia.drills.loopback import loopback
from tests.web.person import SHORT, Person, versions

pytestmark = pytest.mark.anyio


async def test_enter_three_times_on_a_slow_line_is_one_turn(person: Person) -> None:
    """S-19."""
    may_go = asyncio.Event()
    held: list[Route] = []

    async def hold(route: Route) -> None:
        held.append(route)
        await may_go.wait()
        await route.continue_()

    await person.open()
    await person.page.route("**/v1/conversations", hold)
    await person.write(SHORT)
    for _ in range(3):
        await person.box.press("Enter")
    await expect(person.questions).to_have_count(1)
    may_go.set()
    await person.ended()
    await expect(person.replies).to_have_count(1)
    assert len([one for one in held if one.request.method == "POST"]) == 1
    assert (person.count("conversations"), person.count("messages")) == (1, 2)
    assert person.count("turns") <= 1


async def test_a_first_send_whose_answer_is_lost_makes_one_conversation(person: Person) -> None:
    lost: list[str] = []

    async def lose_the_first(route: Route) -> None:
        if route.request.method == "POST" and not lost:
            await route.fetch()  # it reaches the service; its answer never comes back
            lost.append(route.request.url)
            await route.abort()
        else:
            await route.continue_()

    await person.open()
    await person.page.route("**/v1/conversations", lose_the_first)
    await person.ask_and_read(SHORT)
    assert len(lost) == 1
    assert (person.count("conversations"), person.count("messages")) == (1, 2)


async def test_enter_that_confirms_a_word_of_an_input_method_sends_nothing(person: Person) -> None:
    """S-56."""
    await person.open()
    await person.box.focus()
    keys = await person.context.new_cdp_session(person.page)
    await keys.send(
        "Input.imeSetComposition", {"text": "にほんご", "selectionStart": 4, "selectionEnd": 4}
    )
    await keys.send(
        "Input.dispatchKeyEvent",
        {"type": "rawKeyDown", "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 229},
    )
    await expect(person.box).to_have_value("にほんご")
    await expect(person.questions).to_have_count(0)
    await keys.send("Input.insertText", {"text": "日本語"})
    await expect(person.box).to_have_value("日本語")
    await person.box.press("Enter")
    await expect(person.questions.locator(".bubble")).to_have_text("日本語")


async def test_shift_and_enter_make_a_new_line(person: Person) -> None:
    await person.open()
    await person.write("one")
    await person.box.press("Shift+Enter")
    await person.box.press_sequentially("two")
    await expect(person.box).to_have_value("one\ntwo")
    await expect(person.questions).to_have_count(0)


async def test_each_conversation_keeps_its_own_draft(person: Person) -> None:
    first = await person.plant("What is a lane?", "A lane is a way through the house.")
    second = await person.plant("What is a rung?", "A rung is a step of the ladder.")
    await person.open(first)
    await person.write("for the first")
    await person.page.locator(f'a[href="/c/{second}"]').click()
    await expect(person.box).to_have_value("")
    await person.write("for the second")
    await person.page.reload()
    await expect(person.box).to_have_value("for the second")
    await person.page.locator(f'a[href="/c/{first}"]').click()
    await expect(person.box).to_have_value("for the first")


async def test_a_spent_budget_is_told_with_its_reset_and_the_text_is_kept(person: Person) -> None:
    await person.open()
    await _plan(person, "empty")
    await person.ask(SHORT)
    await person.ended()
    await person.ask(SHORT)
    problem = person.page.locator(".composer .problem")
    await expect(problem).to_contain_text("enough again at")
    await expect(person.box).to_have_value(SHORT)
    await expect(person.questions).to_have_count(1)
    assert person.count("messages") == 2
    # The box works as before.
    await _plan(person, "free")
    await person.box.press("Enter")
    await expect(problem).to_have_count(0)
    await expect(person.replies).to_have_count(2)
    await person.ended()
    await person.matches_store()
    assert person.count("messages") == 4


async def test_a_failed_answer_says_why_and_is_tried_again(person: Person) -> None:
    conversation = await person.plant(
        SHORT,
        "Half an ans",
        status="failed",
        finish=None,
        failure='["replica_lost", "The engine was lost.", true, null]',
    )
    await person.open(conversation)
    note = person.last.get_by_role("note")
    await expect(note).to_contain_text("The engine was lost.")
    assert await person.copied(person.last) == "Half an ans"
    await note.get_by_role("button", name="Try again").click()
    await expect(versions(person.last)).to_have_text("2/2")
    await person.ended()
    await person.matches_store()


async def test_a_server_that_is_away_is_told_and_tried_again(person: Person) -> None:
    await person.page.route("**/v1/me", lambda route: route.abort())
    await person.page.goto(person.url)
    away = person.page.get_by_role("heading", name="The server cannot be reached")
    await expect(away).to_be_visible()
    await person.page.unroute("**/v1/me")
    await person.page.get_by_role("button", name="Try again").click()
    await expect(person.box).to_be_visible()


async def _plan(person: Person, plan: str) -> None:
    headers = {"Authorization": f"Bearer {person.service.key}"}
    async with loopback(20, headers=headers) as http:
        place = f"{person.service.url}/v1/admin/users/{person.id}"
        answer = await http.patch(place, json={"plan": plan})
        assert answer.status_code == 200, answer.text
