"""`python -m tests.web.cuts --replies 50 --cuts 200 --seed 7`: a line that is cut at random.

A real browser, the real service, and answers that are broken off again and again. Where and how the
line is cut follows from the seed. In the end every text on the screen must be the one in the store,
and nothing may be there twice. Prints a line for each reply, and exits with 1 at a difference.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from playwright.async_api import async_playwright, expect

from tests.e2e.processes import fake_service
from tests.web.line import Line, line_to
from tests.web.person import AGAIN_MS, CHROMIUM, PATIENCE_MS, QUIET, Person, profile

Way = Literal["reset", "away", "offline"]

WAYS: Final[tuple[Way, ...]] = ("reset", "away", "offline")
QUESTION: Final = "Write a long story about ship number {n} and its crew, at length."
# Longer than what is cut into it: an answer has 250 tokens at most, about 800 characters.
STEP_S: Final = 0.015
CHARS: Final = 600
REPLIES_EACH: Final = 5  # of one conversation; then another begins
PLANS: Final = """
[plans.free]
answer_tokens = 250
budgets = [{ name = "tokens_day", unit = "tokens", limit = 100000000, refill_s = 86400 }]
[plans.plus]
budgets = [{ name = "tokens_day", unit = "tokens", limit = 100000000, refill_s = 86400 }]
"""

# At least so much of the reply is on the screen, or it has ended.
_REACHED: Final = """([replies, least]) => {
  const all = document.querySelectorAll('.message.reply');
  const last = all[all.length - 1];
  if (all.length < replies) return false;
  if (last?.getAttribute('aria-busy') !== 'true') return true;
  return (last.querySelector('.prose')?.innerText ?? '').length >= least;
}"""


@dataclass(frozen=True, slots=True)
class Cut:
    """When so many characters are on the screen; none: as soon as the message was sent."""

    chars: int
    way: Way


def plan(replies: int, cuts: int, seed: int) -> list[list[Cut]]:
    """The cuts of each reply, in order."""
    dice = random.Random(seed)
    planned: list[list[Cut]] = [[] for _ in range(replies)]
    for n in range(cuts):
        chars = 0 if dice.random() < 0.15 else dice.randrange(CHARS)
        planned[n % replies].append(Cut(chars, dice.choice(WAYS)))
    return [sorted(one, key=lambda cut: cut.chars) for one in planned]


async def ask_over(person: Person, line: Line, n: int, cuts: list[Cut]) -> int:
    """Asks one question over the line, which is cut; how often it was while the answer ran."""
    replies = await person.replies.count() + 1
    await person.service.pace(STEP_S)
    await person.write(QUESTION.format(n=n))
    await person.box.press("Enter")
    made = 0
    for cut in cuts:
        await person.page.wait_for_function(
            _REACHED, arg=[replies if cut.chars else 0, cut.chars], timeout=AGAIN_MS
        )
        await break_line(person, line, cut.way)
        made += 1
    await person.ended()
    return made


async def break_line(person: Person, line: Line, way: Way) -> None:
    """Cuts it and mends it: at once, when the page has noticed, or with the browser offline."""
    line.cut()
    if way == "offline":
        await person.context.set_offline(True)
    if way != "reset" and await person.page.locator(".message.reply[aria-busy=true]").count():
        # Noticed, or over before it could be.
        noticed = person.page.locator(".waiting, .message.reply[aria-busy=false]")
        await expect(noticed.last).to_be_attached()
    line.mend()
    await person.context.set_offline(False)


async def compare(person: Person) -> None:
    """Every text on the screen is the text in the store, and each is there once."""
    stored = person.stored()
    answers = [m["content"] for m in stored if m["role"] == "assistant"]
    asked = [m["content"] for m in stored if m["role"] == "user"]
    await expect(person.replies).to_have_count(len(answers))
    await expect(person.questions.locator(".bubble")).to_have_text(asked)
    shown = [await person.copied(person.replies.nth(n)) for n in range(len(answers))]
    assert shown == answers, f"shown: {shown!r}\nstored: {answers!r}"
    assert all(m["status"] == "completed" for m in stored), stored


async def cut_and_compare(person: Person, line: Line, planned: list[list[Cut]]) -> int:
    """All replies, a few to a conversation; how many cuts were made."""
    made = 0
    for n, cuts in enumerate(planned):
        if n % REPLIES_EACH == 0:
            await person.open()
        made += await ask_over(person, line, n, cuts)
        await compare(person)
        print(f"reply {n + 1}: {len(cuts)} cuts, {made} in all", flush=True)
    return made


async def main(replies: int, cuts: int, seed: int) -> None:
    """Starts a service and a browser of its own, and ends them."""
    expect.set_options(timeout=PATIENCE_MS)
    with tempfile.TemporaryDirectory(prefix="tertulia-cuts-") as folder:
        service = fake_service(Path(folder), PLANS, step_s=STEP_S)
        service.start()
        try:
            await service.ready()
            async with async_playwright() as playwright, line_to(service.port) as line:
                browser = await playwright.chromium.launch(
                    executable_path=CHROMIUM, args=list(QUIET)
                )
                context = await profile(browser)
                person = Person(service, context, await context.new_page(), "ada", url=line.url)
                await person.register()
                made = await cut_and_compare(person, line, plan(replies, cuts, seed))
                print(f"seed {seed}: {made} cuts over {replies} replies, every text as stored")
                await browser.close()
        finally:
            service.end()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replies", type=int, default=50)
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    asyncio.run(main(given.replies, given.cuts, given.seed))
