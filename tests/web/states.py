"""`python -m tests.web.states FOLDER`: pictures of the states that a reviewer looks at, each by
a person of their own. The service is the real one; its replica is the fake, which takes as long for
an answer as a picture needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from playwright.async_api import async_playwright, expect

from tests.e2e.processes import Service, fake_service
from tests.web.person import CHROMIUM, LONG, PATIENCE_MS, QUIET, SHORT, Person, profile

WIDE, PHONE = {"width": 1180, "height": 860}, {"width": 390, "height": 844}
SLOTS = 8
PLANS = """
[plans.free]
answer_tokens = 250
wait_s = 600
budgets = [{ name = "tokens_day", unit = "tokens", limit = 1000000, refill_s = 86400 }]
replies_running = 20
[plans.empty]
budgets = [{ name = "turns_day", unit = "turns", limit = 1, refill_s = 86400 }]
"""
OURS = {"Sec-Fetch-Site": "same-origin"}
TITLES = ("A walk in the hills", "Sourdough that does not rise", "Heat pumps", "A letter to Inés")


async def empty(person: Person) -> None:
    await person.open()


async def search(person: Person) -> None:
    for title in TITLES:
        await titled(person, await person.plant(SHORT, "Hello."), title)
    await person.open()
    await person.page.locator("#search").fill("hello")
    await expect(person.page.locator(".entry mark")).to_have_count(len(TITLES))


async def queue(person: Person) -> None:
    """All slots are taken, and one more asks."""
    await person.service.pace(5.0)
    for _ in range(SLOTS):
        made = await person.context.request.post(
            person.url + "/v1/conversations", data={}, headers=OURS
        )
        place = f"{person.url}/v1/conversations/{(await made.json())['id']}/messages"
        key = {"Idempotency-Key": secrets.token_hex(8)}
        await person.context.request.post(place, data={"content": LONG}, headers=OURS | key)
    await person.open()
    await person.write("And what do herons eat?")
    await person.box.press("Enter")
    await expect(person.page.locator(".waiting")).to_contain_text("line")


async def quota(person: Person) -> None:
    with contextlib.closing(sqlite3.connect(person.service.database, timeout=10)) as database:
        database.execute("UPDATE users SET plan = 'empty' WHERE id = ?", (person.id,))
        database.commit()
    await person.open()
    await person.ask_and_read(SHORT)
    await person.write("One more question about herons.")
    await person.box.press("Enter")
    await expect(person.page.get_by_role("alert")).to_be_visible()


async def refusal(person: Person) -> None:
    await person.open()
    await person.ask("How do I make a bomb?")
    await expect(person.page.locator(".refusal")).to_be_visible()


async def failure(person: Person) -> None:
    why = ["replica_lost", "The engine was lost.", True, None]
    conversation = await person.plant(
        "Where do herons sleep?", "In reeds, and", status="failed", finish=None,
        failure=json.dumps(why),
    )  # fmt: skip
    await titled(person, conversation, "Herons")
    await person.open(conversation)
    await expect(person.page.locator(".failure")).to_be_visible()


async def account(person: Person) -> None:
    await person.open()
    drawer = person.page.get_by_role("button", name="Show conversations")
    if await drawer.is_visible():
        await drawer.click()
    await person.page.locator(".me").click()
    await expect(person.page.locator("dialog[open] .budgets")).to_be_visible()


async def operations(person: Person) -> None:
    """A fleet at work: three answers run, and the charts have something to draw."""
    await person.becomes_administrator()
    for title in TITLES:
        await titled(person, await person.plant(SHORT, "Hello."), title)
    await person.service.pace(0.1)
    await person.open()
    for _ in range(3):
        await person.page.get_by_role("button", name="New chat").click()
        await person.write(LONG)
        await person.box.press("Enter")
        await person.talking()
    await person.page.get_by_role("button", name="Operations", exact=True).click()
    running = person.page.locator(".tiles > div", has_text="Answers running").locator("dd")
    await expect(running).to_have_text("3")
    await expect(person.page.locator(".chart canvas")).to_have_count(4)
    await person.page.wait_for_timeout(10_000)  # five looks: a line and not a dot


async def planner(person: Person) -> None:
    """A plan for a town, and how it goes under twice its peak."""
    await person.becomes_administrator()
    await person.page.goto(person.url + "/operations")
    await person.page.get_by_role("button", name="Planner", exact=True).click()
    people = person.page.get_by_role("slider", name="People who use it on a day")
    await people.fill("60")
    await person.page.get_by_role("button", name="Play it").click()
    await expect(person.page.locator(".chart canvas")).to_have_count(6)


Scene = Callable[[Person], Awaitable[None]]
STATES: tuple[tuple[str, Scene, str, dict[str, int]], ...] = (
    ("empty", empty, "light", WIDE),
    ("empty-phone", empty, "dark", PHONE),
    ("search", search, "light", WIDE),
    ("queue", queue, "light", WIDE),
    ("quota", quota, "light", WIDE),
    ("refusal", refusal, "light", WIDE),
    ("failure", failure, "dark", WIDE),
    ("account", account, "light", WIDE),
    ("account-phone", account, "light", PHONE),
    ("operations", operations, "light", {"width": 1180, "height": 1000}),
    ("planner", planner, "light", {"width": 1180, "height": 2600}),
    ("planner-phone", planner, "dark", {"width": 390, "height": 4600}),
)


async def titled(person: Person, conversation: str, title: str) -> None:
    place = f"{person.url}/v1/conversations/{conversation}"
    await person.context.request.patch(place, data={"title": title}, headers=OURS)


async def shoot(service: Service, folder: Path) -> None:
    """Each state by a person of their own."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        for name, scene, colours, size in STATES:
            context = await profile(browser)
            person = Person(service, context, await context.new_page(), f"ada-{name}")
            await person.register()
            await person.page.set_viewport_size(size)  # type: ignore[arg-type]  # width and height
            await person.page.emulate_media(color_scheme="dark" if colours == "dark" else "light")
            await scene(person)
            await person.page.mouse.move(0, 0)
            await person.page.screenshot(path=folder / f"{name}.png")
            await service.pace(0.001)
            await person.quiet()
            await context.close()
            print(folder / f"{name}.png")
        await browser.close()


async def main(folder: Path) -> None:
    """Starts a service of its own, and ends it."""
    with tempfile.TemporaryDirectory(prefix="tertulia-states-") as home:
        service = fake_service(Path(home), PLANS, step_s=0.01)
        service.start()
        try:
            await service.ready()
            await shoot(service, folder)
        finally:
            service.end()


if __name__ == "__main__":
    if shutil.which(CHROMIUM) is None:
        sys.exit("There is no Chromium: scripts/debian-packages chromium")
    if len(sys.argv) != 2:
        sys.exit("Name the folder for the pictures: python -m tests.web.states FOLDER")
    expect.set_options(timeout=PATIENCE_MS)
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    asyncio.run(main(Path(sys.argv[1])))
