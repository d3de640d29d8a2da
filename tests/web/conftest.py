"""One service and one real Chromium for all tests of the page, and a person for each.

The service is the real one, with the engine that it starts by itself and the small model. A file
whose tests need a fault, a speed or a text that no model gives on demand takes `fake_service` for
it, and says why.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, async_playwright, expect

from tests.e2e.processes import Service, installed_models
from tests.e2e.processes import fake_service as over_a_fake
from tests.web.person import CHROMIUM, PATIENCE_MS, QUIET, STEP_S, Person, profile

# Who has the plan `plus` gets an answer that goes on while something is done that takes its time.
PLANS = """
[plans.free]
answer_tokens = 250
budgets = [{ name = "tokens_day", unit = "tokens", limit = 1000000, refill_s = 86400 }]
replies_running = 20
wait_s = 600
abandon_s = "never"
[plans.plus]
answer_tokens = 1500
budgets = [{ name = "tokens_day", unit = "tokens", limit = 1000000, refill_s = 86400 }]
replies_running = 20
abandon_s = "never"
[plans.empty]
budgets = [{ name = "turns_day", unit = "turns", limit = 1, refill_s = 86400 }]
"""
ENGINE = """
[models]
large = "off"
threads = 1
"""

expect.set_options(timeout=PATIENCE_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here drives the browser, needs the model and may wait for both."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.model)
            item.add_marker(pytest.mark.timeout(240))


@pytest.fixture(scope="session")
async def engine_service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """The service with the engine that it starts by itself."""
    async with running(Service(tmp_path_factory.mktemp("engine"), ENGINE + PLANS)) as made:
        yield made


@pytest.fixture(scope="session")
async def fake_service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    """The service over a fake, which breaks as it is told and takes the time that a test wants."""
    folder = tmp_path_factory.mktemp("fake")
    async with running(over_a_fake(folder, PLANS, step_s=STEP_S)) as made:
        yield made


@pytest.fixture
def service(engine_service: Service) -> Service:
    """What the page talks to."""
    return engine_service


@asynccontextmanager
async def running(service: Service) -> AsyncGenerator[Service, None]:
    if not (installed_models() / "small").is_dir():
        pytest.skip("the small model is not installed: tertulia models pull small")
    service.start()
    try:
        await service.ready()
        yield service
    finally:
        service.end()


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
