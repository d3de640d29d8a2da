"""`python -m tests.web.shots`: pictures of a real conversation for the documentation.

It writes docs/images/chat.png (light), chat-dark.png, chat-phone.png and operations.png, each at
most 200 kB.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.async_api import Browser, async_playwright, expect

from tests.e2e.processes import ROOT, Service, installed_models
from tests.web.person import CHROMIUM, LONG, LONG_TOO, QUIET, Person, profile

FOLDER = ROOT / "docs" / "images"
MOST_BYTES = 200_000
# The larger model writes better; where it is not installed the small one answers.
TRIES = 120
TOML = """
[models]
large = "{large}"
threads = 1
[plans.free]
answer_tokens = 300
replies_running = 4
models = ["small", "large"]
"""
OLDER = (
    ("A walk in the hills", "Three days in the hills in May: what should I pack?"),
    ("Sourdough", "Why does my bread not rise?"),
    ("Heat pumps", "How can a heat pump give more heat than it takes power?"),
)
QUESTIONS = (
    "What is a palindrome? Answer in one sentence.",
    "Write a short Python function that tells whether a word is one, without comments.",
)
LOOKS = (
    ("chat", "light", {"width": 1180, "height": 860}),
    ("chat-dark", "dark", {"width": 1180, "height": 860}),
    ("chat-phone", "light", {"width": 390, "height": 844}),
)


async def shoot(service: Service, browser: Browser) -> None:
    """One person, some conversations, one answer to look at."""
    context = await profile(browser)
    person = Person(service, context, await context.new_page(), "ada")
    await person.register()
    for title, question in reversed(OLDER):
        await person.titled(await person.plant(question, "An answer."), title)
    await person.open()
    picker = person.page.get_by_label("Model")
    if await picker.locator("option[value=large]").count():
        await _until_ready(person, "large")
        await picker.select_option("large")
    for question in QUESTIONS:
        conversation = await person.ask_and_read(question)
    await person.titled(conversation, "Palindromes in Python")
    for name, scheme, size in LOOKS:
        await person.page.set_viewport_size(size)  # type: ignore[arg-type]  # width and height
        await person.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        await person.open(conversation)
        await expect(person.last.locator(".is-plain")).to_have_count(0)
        await person.page.mouse.move(0, 0)
        path = FOLDER / f"{name}.png"
        await person.page.screenshot(path=path)
        size_bytes = path.stat().st_size
        assert size_bytes <= MOST_BYTES, f"{path}: {size_bytes} bytes"
        print(f"{path}: {size_bytes / 1000:.0f} kB")


async def shoot_operations(service: Service, browser: Browser) -> None:
    """The fleet at work on three answers."""
    context = await profile(browser)
    person = Person(service, context, await context.new_page(), "grace")
    await person.register()
    await person.becomes_administrator()
    await person.page.set_viewport_size({"width": 1280, "height": 1060})
    await person.open()
    for question in (LONG, LONG_TOO, LONG):
        await person.page.get_by_role("button", name="New chat").click()
        await person.write(question)
        await person.box.press("Enter")
        await expect(person.replies).to_have_count(1)
    await person.page.get_by_role("button", name="Operations", exact=True).click()
    rate = person.page.locator(".tiles > div", has_text="Tokens a second").locator("dd")
    await expect(rate).not_to_have_text(re.compile("^[–0]$"))
    await expect(person.page.locator(".chart canvas")).to_have_count(4)
    await person.page.wait_for_timeout(12_000)  # six looks: a line and not a dot
    await person.page.mouse.move(0, 0)
    path = FOLDER / "operations.png"
    await person.page.screenshot(path=path)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
    assert path.stat().st_size <= MOST_BYTES


async def _until_ready(person: Person, model: str) -> None:
    for _ in range(TRIES):
        known = await (await person.context.request.get(f"{person.url}/v1/models")).json()
        if any(m["id"] == model and m["status"]["state"] == "ready" for m in known["data"]):
            return
        await asyncio.sleep(0.5)
    raise AssertionError(f"{model} does not become ready")


async def main() -> None:
    """Starts a service of its own, and ends it."""
    large = "large" if (installed_models() / "large" / "model.json").is_file() else "off"
    with tempfile.TemporaryDirectory(prefix="tertulia-shots-") as folder:
        service = Service(Path(folder), TOML.format(large=large))
        service.start()
        try:
            await service.ready()
            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(
                    executable_path=CHROMIUM, args=list(QUIET)
                )
                await shoot(service, browser)
                await shoot_operations(service, browser)
                await browser.close()
        finally:
            service.end()


if __name__ == "__main__":
    if shutil.which(CHROMIUM) is None:
        sys.exit("There is no Chromium: scripts/debian-packages chromium")
    expect.set_options(timeout=400_000)  # a few hundred tokens of the larger model
    FOLDER.mkdir(parents=True, exist_ok=True)
    asyncio.run(main())
