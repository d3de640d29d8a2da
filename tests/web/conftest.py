"""One real service and one real Chromium for all tests of the page, and a person for each."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, async_playwright, expect

from tests.e2e.processes import Service, installed_models
from tests.web.person import CHROMIUM, PATIENCE_MS, QUIET, Person, profile

TOML = """
[models]
large = "off"
threads = 1
[plans.free]
answer_tokens = 250
tokens_per_day = 1000000
replies_running = 4
[plans.plus]
answer_tokens = 250
tokens_per_day = 1000000
[plans.empty]
tokens_per_day = 20
"""

expect.set_options(timeout=PATIENCE_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here drives the browser, needs the model and may wait for both."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.model)
            item.add_marker(pytest.mark.timeout(120))


@pytest.fixture(scope="session")
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    if not (installed_models() / "small").is_dir():
        pytest.skip("the small model is not installed: tertulia models pull small")
    running = Service(tmp_path_factory.mktemp("web"), TOML)
    running.start()
    try:
        await running.ready()
        yield running
    finally:
        running.end()


@pytest.fixture(scope="session")
def installed() -> str:
    if not Path(CHROMIUM).exists():
        pytest.skip("there is no Chromium: scripts/debian-packages chromium")
    return CHROMIUM


@pytest.fixture(scope="session")
async def chromium(installed: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=installed, args=list(QUIET))
        yield browser
        await browser.close()


@pytest.fixture
async def stranger(service: Service, chromium: Browser) -> AsyncIterator[Person]:
    """Somebody without an account. Whatever the test: nothing left the origin, nothing threw."""
    context = await profile(chromium)
    person = Person(service, context, await context.new_page(), "ada-" + secrets.token_hex(4))
    person.watch(person.page)
    try:
        yield person
        await person.quiet()
    finally:
        await context.close()
    foreign = [
        a for a in person.addresses if not a.startswith((person.url, service.url, "data:", "blob:"))
    ]
    assert foreign == []
    assert person.breakdowns == []


@pytest.fixture
async def person(stranger: Person) -> Person:
    """Somebody with an account of their own, signed in."""
    await stranger.register()
    return stranger
