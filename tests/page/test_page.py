"""The page in a browser: no word lost or doubled, no draft lost, nothing unsafe run or fetched.

Here is what takes a gateway that misbehaves, or needs none; the rest is in `tests/web`, over a real
one. It must never depend on the page's inner names beyond its roles, labels and a few classes.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, Route, expect

END_MS = 30_000

pytestmark = pytest.mark.browser


def ask(page: Page, text: str) -> None:
    page.get_by_label("Your message").fill(text)
    page.keyboard.press("Enter")


def until_done(page: Page) -> None:
    expect(page.locator(".reply [aria-label='Answer again']").last).to_be_visible(timeout=END_MS)
    expect(page.get_by_label("Stop the answer")).to_have_count(0, timeout=END_MS)


def last_answer(page: Page) -> str:
    return page.locator(".reply .prose").last.inner_text()


def assert_whole(text: str) -> None:
    """The fake's long answer, once and to its end."""
    assert text.count("The short sum") == 1
    assert text.count("Decode is") == 1
    assert text.endswith("onerror=alert(1)>.")


@pytest.mark.parametrize("trouble", ["break", "gap", "reset"])
def test_a_stream_in_trouble_shows_every_word_once(page: Page, trouble: str) -> None:
    """S-02, S-04: broken lines, missing numbers and a lost buffer."""
    ask(page, f"{trouble} please")
    until_done(page)
    assert_whole(last_answer(page))
    expect(page.locator(".reply")).to_have_count(1)
    expect(page.locator(".question")).to_have_count(1)


def test_a_used_up_budget_gives_the_text_back_and_the_next_message_works(page: Page) -> None:
    """S-39."""
    ask(page, "full please")
    expect(page.get_by_role("alert")).to_contain_text("used up")
    expect(page.get_by_label("Your message")).to_have_value("full please")
    expect(page.locator(".message")).to_have_count(0)
    ask(page, "hello")
    until_done(page)
    assert last_answer(page) == "Hello! How are you today?"


def test_each_budget_has_a_meter_and_words_for_what_is_left_and_when_it_is_full(page: Page) -> None:
    corner = page.locator(".me")
    expect(corner).to_contain_text("36 % left, full again in 2 hours")
    corner.click()
    rows = page.locator("dialog[open] .budgets li")
    expect(rows).to_have_count(6)
    used, full = rows.nth(0), rows.nth(1)
    expect(used).to_contain_text("Use in three hours")
    expect(used).to_contain_text("9,120 of 25,000 left")
    expect(used).to_contain_text("full again in 2 hours")
    meter = used.get_by_role("progressbar", name="Use in three hours: left")
    assert meter.evaluate("meter => [meter.value, meter.max]") == [9_120 / 25_000, 1]
    expect(full).to_contain_text("30,000 of 30,000 left")
    expect(full).not_to_contain_text("full again")


def test_a_refusal_is_shown_again_after_a_reload(page: Page) -> None:
    ask(page, "refuse please")
    expect(page.locator(".refusal")).to_contain_text("someone you trust")
    until_done(page)
    page.reload()
    expect(page.locator(".refusal")).to_contain_text("someone you trust")
    until_done(page)


def test_a_look_away_while_a_message_is_queued_doubles_nothing(page: Page) -> None:
    """The list is fetched again on return: the waiting turn is then known by two ids."""
    ask(page, "queue please")
    expect(page.get_by_text("in line")).to_be_visible()
    page.wait_for_timeout(2_100)  # two returns within two seconds count as one
    with page.expect_response("**/messages?*"):
        page.evaluate("dispatchEvent(new Event('focus'))")
    until_done(page)
    expect(page.locator(".question")).to_have_count(1)
    expect(page.locator(".reply")).to_have_count(1)


def test_a_draft_outlives_a_reload(page: Page) -> None:
    page.get_by_label("Your message").fill("not sent yet")
    page.reload()
    expect(page.get_by_label("Your message")).to_have_value("not sent yet")


def test_a_text_that_is_too_long_is_answered_before_it_is_sent(page: Page) -> None:
    page.get_by_label("Your message").fill("x" * 40_000)
    expect(page.get_by_role("alert")).to_contain_text("at most 32 kB")
    expect(page.get_by_role("button", name="Send")).to_be_disabled()


def test_a_link_to_the_page_fills_the_box_and_sends_nothing(page: Page, address: str) -> None:
    """S-45."""
    page.goto(f"{address}/?q=spend%20my%20tokens")
    expect(page.get_by_label("Your message")).to_have_value("spend my tokens")
    expect(page.locator(".message")).to_have_count(0)


def test_hostile_markdown_runs_nothing_and_fetches_nothing(page: Page) -> None:
    """S-43, S-44, S-46. The `page` fixture fails when a request leaves the origin."""
    formulas: list[Route] = []
    page.route("**/assets/formula-*.js", lambda route: formulas.append(route))
    ask(page, "hostile please")
    until_done(page)
    # The blocks were drawn twice by now, as the end brought a definition: each is still set once.
    assert formulas
    for route in formulas:
        route.continue_()
    expect(page.locator(".prose math")).to_have_count(2)
    expect(page.locator(".formula:not(.is-set)")).to_have_text("\\frac{1")
    assert page.evaluate("globalThis.broken ?? null") is None
    tags = page.locator(".prose *").evaluate_all("all => [...new Set(all.map(e => e.localName))]")
    assert not {"img", "script", "svg", "iframe", "form", "video", "meta", "base"} & set(tags)
    links = page.locator(".prose a").evaluate_all("all => all.map(a => [a.protocol, a.rel])")
    assert {tuple(link) for link in links} == {("https:", "noopener noreferrer")}
    assert "$1.50 and $3" in last_answer(page)


def test_the_live_region_never_reads_the_words_of_a_reply(page: Page) -> None:
    page.evaluate(
        "() => { globalThis.said = []; new MutationObserver(() => said.push("
        "document.querySelector('.sr[role=status]').textContent)).observe("
        "document.querySelector('.sr[role=status]'), "
        "{characterData: true, childList: true, subtree: true}) }"
    )
    ask(page, "queue please")
    until_done(page)
    said = [text.strip() for text in page.evaluate("said")]
    assert said == ["Waiting, place 3 in the queue.", "Answer started.", "Answer finished."]


def test_a_phone_has_no_sideways_scroll_and_opens_the_list(browser: Browser, address: str) -> None:
    context = browser.new_context(
        viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True
    )
    page = context.new_page()
    page.goto(f"{address}/#signin=once")
    page.get_by_label("Show conversations").click()
    page.get_by_role("link", name="Why is decode memory-bound?").click()
    page.wait_for_selector(".prose table")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    context.close()


def test_a_conversation_is_renamed_and_its_deletion_undone_with_the_mouse(page: Page) -> None:
    """The box must show although the pointer has left the row that opened it."""
    ask(page, "hello there")
    until_done(page)
    row = page.locator(".entry").first
    row.hover()
    row.get_by_label("Options of").click()
    page.get_by_role("menuitem", name="Rename").click()
    expect(page.get_by_label("Title", exact=True)).to_be_focused()
    page.keyboard.type("A name of my own")
    page.keyboard.press("Enter")
    expect(row).to_contain_text("A name of my own")

    page.evaluate(  # however busy the machine is, the time to undo does not run out
        "() => { const begin = window.setTimeout; window.setTimeout = (what, ms, ...rest) =>"
        " begin(what, ms >= 7000 ? 2 ** 30 : ms, ...rest) }"
    )
    row.hover()
    row.get_by_label("Options of").click()
    page.get_by_role("menuitem", name="Delete").click()
    expect(page.locator(".entry", has_text="A name of my own")).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".entry", has_text="A name of my own")).to_have_count(1)
