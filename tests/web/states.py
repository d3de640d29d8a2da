"""The states of the page: what a person does to come to each of them.

`python -m tests.web.states FOLDER [SCENE …]` takes pictures of all, or of some, for a reviewer, and
`test_axe.py` looks at all of them. A new part of the page adds a scene here, and both follow; a tab
of the operations page is found by itself. The service is the real one; its replica is the fake, as
no model makes others wait, fails or stands still when it is told to.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal

import httpx2
from playwright.async_api import Browser, Page, async_playwright, expect

from tertulia.drills.loopback import loopback
from tests.e2e.processes import Service, fake_service
from tests.web.conftest import PLANS
from tests.web.person import (
    CHROMIUM,
    LONG,
    PATIENCE_MS,
    QUIET,
    SHORT,
    SLOW_S,
    Person,
    profile,
)

# Three frames in which nothing moves: of what is inherited each level may take one to follow.
_CALM: Final = """async () => {
  for (let calm = 0, frames = 0; calm < 3 && frames < 300; frames++) {
    await new Promise(requestAnimationFrame);
    const moves = document.getAnimations().some((one) => one.playState === 'running');
    calm = moves ? 0 : calm + 1;
  }
}"""
Colours = Literal["light", "dark"]
# A scene takes a person through states, and names each when it is on the screen.
Scene = Callable[[Person], AsyncGenerator[str, None]]

SIZES: Final = {"wide": (1180, 860), "phone": (390, 844)}
SLOTS: Final = 8  # of the fake
TITLES: Final = ("A walk in the hills", "Sourdough that does not rise", "Heat pumps", "To Inés")
QUESTION: Final = "How can a heat pump give more heat than it takes power?"
ANSWER: Final = """## It moves heat

A heat pump does **not** make heat from power; it *moves* it, as a refrigerator does.

| outside | heat for 1 kWh |
|:--|--:|
| 7 °C | 4.1 kWh |
| −7 °C | 2.6 kWh |

1. The fluid boils in the cold, at `-25 °C`.
2. The compressor makes it hot.

> See [the tables](https://tables.invalid/heat) of the maker.

```python
def heat_kwh(power_kwh: float, factor: float = 4.1) -> float:
    return power_kwh * factor  # what is moved, and what moved it
```

$$\\eta = \\frac{T_\\text{hot}}{T_\\text{hot} - T_\\text{cold}}$$
"""


async def signing_in(person: Person) -> AsyncGenerator[str, None]:
    page = person.page
    await person.context.clear_cookies()
    await page.goto(person.url)
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    yield "sign-in"
    await page.get_by_label("Name").fill("nobody")
    await page.get_by_label("Password").fill("not this one")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    yield "sign-in-refused"
    await page.get_by_role("button", name="Make an account").click()
    await expect(page.get_by_role("heading", name="Make an account")).to_be_visible()
    yield "register"
    # What the gateway says where providers are configured, without one that would have to be real.
    ways = {"registration": True, "providers": [{"name": "work", "title": "Work", "start": "/"}]}
    await page.route("**/v1/auth/ways", lambda route: route.fulfill(json=ways))
    await page.goto(person.url + "/#refused=provider_away")
    await expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    await expect(page.get_by_role("link", name="Sign in with Work")).to_be_visible()
    yield "sign-in-providers"
    await page.unroute("**/v1/auth/ways")


async def beginning(person: Person) -> AsyncGenerator[str, None]:
    page = person.page
    await person.open()
    yield "empty"
    await page.get_by_role("button", name="Temporary chat").click()
    yield "temporary"
    await page.locator("h1").click()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_be_visible()
    yield "help"


async def reading(person: Person) -> AsyncGenerator[str, None]:
    page = person.page
    notices = json.dumps(["context_shortened"])
    conversation = await person.plant(QUESTION, ANSWER, notices=notices)
    await person.copies(conversation, 40)
    await person.titled(conversation, TITLES[2])
    await person.open(conversation)
    await expect(person.last.locator("math")).to_be_visible()
    await expect(person.last.locator(".is-coloured")).to_have_count(1)
    yield "conversation"
    await page.locator(".chat-head").get_by_role("button", name="Options of").click()
    await expect(page.get_by_role("menu")).to_be_visible()
    yield "menu"
    await page.keyboard.press("Escape")
    await person.last.get_by_role("link", name="the tables").click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    yield "link"
    await page.keyboard.press("Escape")
    await person.questions.first.hover()
    await person.questions.first.get_by_role("button", name="Edit and send again").click()
    yield "editing"
    await page.keyboard.press("Escape")
    await person.paste(1_000_000)
    await expect(page.locator(".composer .problem")).to_be_visible()
    yield "too-long"
    await page.set_viewport_size({"width": SIZES["phone"][0], "height": SIZES["phone"][1]})
    await page.get_by_role("button", name="Show conversations").click()
    await expect(page.get_by_role("button", name="New chat")).to_be_in_viewport()
    yield "drawer"


async def sharing(person: Person) -> AsyncGenerator[str, None]:
    page = person.page
    await person.open(await person.plant(QUESTION, ANSWER))
    await page.locator(".chat-head").get_by_role("button", name="Options of").click()
    await page.get_by_role("menuitem", name="Share").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Make a link").click()
    link = await dialog.get_by_label("The link").input_value()
    yield "sharing"
    await dialog.get_by_role("button", name="Take this link back").focus()
    other = await person.context.new_page()
    shown = Person(person.service, person.context, other, person.name)
    await other.goto(link)
    await expect(shown.last.locator("math")).to_be_visible()
    person.page, before = other, page
    yield "shared"
    await dialog.get_by_role("button", name="Take this link back").click()
    await expect(dialog.get_by_role("button", name="Take this link back")).to_have_count(0)
    await other.reload()
    await expect(other.get_by_role("heading")).to_be_visible()
    yield "shared-gone"
    person.page = before
    await other.close()


async def searching(person: Person) -> AsyncGenerator[str, None]:
    page = person.page
    for title in TITLES:
        await person.titled(await person.plant(SHORT, "Hello."), title)
    await person.open()
    await page.locator("#search").fill("hello")
    await expect(page.locator(".entry mark")).to_have_count(len(TITLES))
    yield "search"
    await page.locator("#search").fill("nothing like it")
    await expect(page.locator(".list-note")).to_be_visible()
    yield "nothing-found"
    await page.locator("#search").press("Escape")
    await person.has_time_to_undo()
    await expect(page.locator(".entry")).to_have_count(len(TITLES))
    await page.locator(".entry").first.hover()
    await page.locator(".entry").first.get_by_role("button", name="Options of").click()
    await page.get_by_role("menuitem", name="Delete").click()
    await expect(page.locator(".toast")).to_be_visible()
    yield "deleted"


async def waiting(person: Person) -> AsyncGenerator[str, None]:
    """All slots are taken, and one more asks."""
    async with full_slots(person.service):
        await person.open()
        await person.write("And what do herons eat?")
        await person.box.press("Enter")
        await expect(person.page.locator(".waiting")).to_contain_text("line")
        yield "queue"
        await person.write("And where do they sleep?")
        await person.box.press("Enter")
        await expect(person.page.get_by_label("Not sent yet")).to_be_visible()
        yield "not-sent-yet"
        await person.page.get_by_role("button", name="Do not send this message").click()
        await person.stop()
        await expect(person.page.get_by_text("Stopped before the first word.")).to_be_visible()
        yield "stopped"


async def refused(person: Person) -> AsyncGenerator[str, None]:
    await person.has_plan("empty")
    await person.open()
    await person.ask_and_read(SHORT)
    await person.write("One more question about herons.")
    await person.box.press("Enter")
    await expect(person.page.get_by_role("alert")).to_be_visible()
    yield "quota"
    await person.has_plan("free")
    await person.open()
    await person.ask("How do I make a bomb?")
    await expect(person.page.locator(".refusal")).to_be_visible()
    await person.ended()
    yield "refusal"


async def failing(person: Person) -> AsyncGenerator[str, None]:
    page = person.page
    why = json.dumps(["replica_lost", "The engine was lost.", True, None])
    conversation = await person.plant(
        "Where do herons sleep?", "In reeds, and", status="failed", finish=None, failure=why
    )
    await person.titled(conversation, "Herons")
    await person.open(conversation)
    await expect(page.locator(".failure")).to_be_visible()
    yield "failure"
    await person.context.set_offline(True)
    await expect(page.locator(".offline")).to_be_visible()
    yield "offline"
    await person.context.set_offline(False)
    await page.goto(person.url + "/c/c_" + "0" * 26)
    await expect(page.get_by_role("heading", name="This conversation is not here")).to_be_visible()
    yield "gone"
    await page.route("**/v1/me", lambda route: route.abort())
    await page.goto(person.url)
    await expect(page.get_by_role("heading", name="cannot be reached")).to_be_visible()
    yield "unreachable"
    await page.unroute("**/v1/me")


async def account(person: Person) -> AsyncGenerator[str, None]:
    await person.open()
    await person.page.locator(".me").click()
    tabs = person.page.get_by_role("dialog").get_by_role("tab")
    await expect(person.page.locator("dialog[open] .budgets")).to_be_visible()
    for tab in await tabs.all():
        await tab.click()
        yield "account-" + slug(await tab.inner_text())


async def operations(person: Person) -> AsyncGenerator[str, None]:
    """A fleet at work: three answers run."""
    page = person.page
    await person.becomes_administrator()
    await person.open()
    await person.service.pace(0.1)
    for _ in range(3):
        await page.get_by_role("button", name="New chat").click()
        await person.write(LONG)
        await person.box.press("Enter")
        await person.talking()
    await person.service.pace(SLOW_S)
    await page.goto(person.url + "/operations")
    running = page.locator(".tiles > div", has_text="Answers running").locator("dd")
    await expect(running).to_have_text("3")
    await expect(page.locator(".chart canvas")).to_have_count(4)
    for tab in await page.get_by_role("navigation", name="Operations").get_by_role("button").all():
        await tab.click()
        await expect(page.locator(".operation-body > *").first).to_be_visible()
        await expect(page.locator("[aria-busy=true]")).to_have_count(0)
        yield "operations-" + slug(await tab.inner_text())


async def planner(person: Person) -> AsyncGenerator[str, None]:
    """A plan for a town, and how it goes under twice its peak."""
    await person.becomes_administrator()
    page = person.page
    await page.goto(person.url + "/operations")
    await page.get_by_role("button", name="Planner", exact=True).click()
    await page.get_by_role("slider", name="People who use it on a day").fill("60")
    await page.get_by_role("button", name="Play it").click()
    await expect(page.locator(".chart canvas")).to_have_count(6)
    yield "planner"


SCENES: Final[tuple[Scene, ...]] = (
    signing_in,
    beginning,
    reading,
    sharing,
    searching,
    waiting,
    refused,
    failing,
    account,
    operations,
    planner,
)


def slug(words: str) -> str:
    return "-".join(words.lower().split())


@asynccontextmanager
async def full_slots(service: Service) -> AsyncGenerator[None, None]:
    """Answers to somebody else, which end no time soon, in every slot of the fake."""
    await service.pace(SLOW_S)
    async with loopback(20, headers={"Authorization": f"Bearer {service.key}"}) as http:
        replies = []
        for _ in range(SLOTS):
            made = await http.post(f"{service.url}/v1/conversations", json={})
            place = f"{service.url}/v1/conversations/{made.json()['id']}/messages"
            key = {"Idempotency-Key": secrets.token_hex(8), "Accept": "application/json"}
            asked = await http.post(place, json={"content": LONG}, headers=key)
            assert asked.status_code == 202, asked.text
            replies.append(asked.json()["messageId"])
            await _runs(http, place)  # else who asks next comes before this one: each their turn
        try:
            yield
        finally:
            for reply in replies:
                await http.post(f"{service.url}/v1/messages/{reply}/stop")


async def _runs(http: httpx2.AsyncClient, place: str) -> None:
    """Waits until the answer is being written."""
    async with asyncio.timeout(PATIENCE_MS / 1000):
        while (status := (await http.get(place)).json()["items"][-1]["status"]) != "running":
            assert status == "queued", status
            await asyncio.sleep(0.02)


async def look(page: Page, size: str, colours: Colours) -> None:
    """The page as it is, in another size and in other colours, when nothing moves any more."""
    width, height = SIZES[size]
    await page.set_viewport_size({"width": width, "height": height})
    await page.emulate_media(color_scheme=colours)
    await page.evaluate(_CALM)


async def shoot(service: Service, browser: Browser, folder: Path, scenes: Sequence[Scene]) -> None:
    """Each scene by a person of its own: on a desktop in the light, on a phone in the dark."""
    for scene in scenes:
        context = await profile(browser)
        person = Person(service, context, await context.new_page(), f"ada-{slug(scene.__name__)}")
        await person.register()
        async for state in scene(person):
            for size, colours in (
                ("phone", "dark"),
                ("wide", "light"),
            ):  # a scene goes on as it was
                await look(person.page, size, "dark" if colours == "dark" else "light")
                path = folder / f"{state}-{size}.png"
                await person.page.screenshot(path=path)
                print(path, flush=True)
        await service.pace(0.001)
        await person.quiet()
        await context.close()


async def main(folder: Path, scenes: Sequence[Scene]) -> None:
    """Starts a service of its own, and ends it."""
    with tempfile.TemporaryDirectory(prefix="tertulia-states-") as home:
        service = fake_service(Path(home), PLANS, step_s=0.01)
        service.start()
        try:
            await service.ready()
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(
                    executable_path=CHROMIUM, args=list(QUIET)
                )
                await shoot(service, browser, folder, scenes)
                await browser.close()
        finally:
            service.end()


if __name__ == "__main__":
    if shutil.which(CHROMIUM) is None:
        sys.exit("There is no Chromium: scripts/debian-packages chromium")
    if len(sys.argv) < 2:
        sys.exit("Name the folder for the pictures: python -m tests.web.states FOLDER [SCENE …]")
    expect.set_options(timeout=PATIENCE_MS)
    place, named = Path(sys.argv[1]), sys.argv[2:]
    place.mkdir(parents=True, exist_ok=True)
    chosen = [scene for scene in SCENES if not named or scene.__name__ in named]
    asyncio.run(main(place, chosen))
