"""Where a message is written: nothing is sent twice, by accident or to the wrong place, or lost."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Route, expect

from tests.web.person import LONG, SHORT, Person, versions

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


async def test_a_message_whose_answer_is_lost_on_the_way_is_one_turn(person: Person) -> None:
    """S-20: the page sends it again under its key, and gets the answer that is there."""
    lost: list[str] = []

    async def lose_the_first(route: Route) -> None:
        if route.request.method == "POST" and not lost:
            await route.fetch()  # taken in, and answered to its end; nothing of it comes back
            lost.append(route.request.headers["idempotency-key"])
            await route.abort()
        else:
            await route.continue_()

    await person.open()
    await person.page.route("**/v1/conversations/*/messages", lose_the_first)
    await person.ask_and_read(SHORT)
    assert len(lost) == 1
    await person.matches_store()
    assert (person.count("messages"), person.count("turns")) == (2, 1)
    await expect(person.replies).to_have_count(1)


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


async def test_what_is_typed_while_an_answer_streams_is_sent_after_it_in_order(
    person: Person,
) -> None:
    await person.has_plan("plus")
    await person.open()
    await person.ask(LONG)
    await person.talking()
    for text in ("Name one fruit, in a word.", "Name one tree, in a word."):
        await person.write(text)
        await person.box.press("Enter")
    waiting = person.page.get_by_label("Not sent yet")
    await expect(waiting.locator(".bubble")).to_have_count(2)
    assert person.count("messages") == 2
    await person.page.reload()  # the browser keeps them
    await expect(waiting.locator(".bubble")).to_have_count(2)
    await person.stop()
    await expect(person.replies).to_have_count(3)
    await person.ended()
    await expect(waiting).to_have_count(0)
    asked = [m["content"] for m in person.stored() if m["role"] == "user"]
    assert asked == [LONG, "Name one fruit, in a word.", "Name one tree, in a word."]
    parents = [m["parent"] for m in person.stored()]
    assert parents == [None, *[m["id"] for m in person.stored()][:-1]]
    await person.matches_store()


async def test_a_message_that_waits_can_be_changed_or_left_out(person: Person) -> None:
    await person.has_plan("plus")
    await person.open()
    await person.ask(LONG)
    await person.talking()
    for text in ("One.", "Two."):
        await person.write(text)
        await person.box.press("Enter")
    waiting = person.page.get_by_label("Not sent yet")
    await waiting.get_by_role("button", name="Do not send this message").first.click()
    await expect(waiting.locator(".bubble")).to_have_text(["Two."])
    await waiting.get_by_role("button", name="Change this message").click()
    await expect(person.box).to_have_value("Two.")
    await expect(waiting).to_have_count(0)
    await person.stop()
    assert person.count("messages") == 2


async def test_a_stop_that_is_quicker_than_its_message_stops_it(person: Person) -> None:
    """S-12."""
    may_go = asyncio.Event()

    async def hold(route: Route) -> None:
        if route.request.method == "POST":
            await may_go.wait()
        await route.continue_()

    await person.open(await person.plant(SHORT, "Hello."))
    await person.page.route("**/v1/conversations/*/messages", hold)
    await person.ask(LONG)
    async with person.page.expect_response("**/stop") as too_soon:
        await person.page.get_by_role("button", name="Stop the answer").click()
    assert (await too_soon.value).status == 404
    may_go.set()
    await expect(person.last.get_by_text("Stopped")).to_be_visible()
    assert person.stored()[-1]["status"] == "stopped"
    await person.page.reload()
    await expect(person.last.get_by_text("Stopped")).to_be_visible()


async def test_a_stop_before_the_conversation_is_made_sends_nothing(person: Person) -> None:
    held: list[Route] = []

    async def hold_the_first(route: Route) -> None:
        if route.request.method == "POST" and not held:
            held.append(route)  # it is never answered
        else:
            await route.continue_()

    await person.open()
    await person.page.route("**/v1/conversations", hold_the_first)
    await person.ask(LONG)
    await person.page.get_by_role("button", name="Stop the answer").click()
    await expect(person.box).to_have_value(LONG)
    await expect(person.questions).to_have_count(0)
    await person.ask_and_read(SHORT)
    assert len(held) == 1
    assert (person.count("conversations"), person.count("messages")) == (1, 2)


async def test_a_megabyte_that_is_pasted_is_answered_at_once_with_the_limit(person: Person) -> None:
    await person.open()
    await person.write("before ")
    await person.paste(1_000_000)
    problem = person.page.locator(".composer .problem")
    await expect(problem).to_contain_text("1,000 kB of at most")
    await expect(problem).to_contain_text("left out")
    await expect(person.box).to_have_value("before ")
    await person.box.press_sequentially("and after")
    await expect(person.box).to_have_value("before and after")


async def test_a_stopped_answer_is_continued(person: Person) -> None:
    """S-17."""
    said = await person.plant(SHORT, "Once upon a", status="stopped", finish="stopped")
    await person.open(said)
    await person.last.get_by_role("button", name="Continue").click()
    await expect(person.replies).to_have_count(2)
    await person.ended()
    assert person.stored()[2]["content"] == "Continue where you stopped."
    assert person.stored()[2]["parent"] == person.stored()[1]["id"]


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
    await person.has_plan("empty")
    await person.ask(SHORT)
    await person.ended()
    await person.ask(SHORT)
    problem = person.page.locator(".composer .problem")
    await expect(problem).to_contain_text("enough again at")
    await expect(person.box).to_have_value(SHORT)
    await expect(person.questions).to_have_count(1)
    assert person.count("messages") == 2
    # The box works as before.
    await person.has_plan("free")
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
