"""Coming in by a provider: the button, the way there and back, and what a refusal is told by.

The provider is a fake: no real one signs strangers in without a person at its form.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page, expect

from tests.e2e.processes import Service, fake_service
from tests.lanes.gateway_rig import served
from tests.openid_provider import CLIENT_ID, CLIENT_SECRET, FakeProvider
from tests.web.conftest import PLANS, running
from tests.web.person import STEP_S, profile

pytestmark = pytest.mark.anyio


@pytest.fixture
async def provider() -> AsyncIterator[FakeProvider]:
    made = FakeProvider()
    async with served(made.app) as url:
        made.url = url
        yield made


@pytest.fixture
async def service(
    provider: FakeProvider, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Service]:
    toml = f"""
    [oidc.work]
    issuer = "{provider.url}"
    client_id = "{CLIENT_ID}"
    title = "Work"
    admit = ["example.org"]
    """
    made = fake_service(tmp_path_factory.mktemp("sign-on"), toml + PLANS, step_s=STEP_S)
    made.program.environment |= {
        "TERTULIA_SERVER__PUBLIC_URL": made.url,
        "TERTULIA_OIDC__WORK__CLIENT_SECRET": CLIENT_SECRET,
    }
    provider.redirect_uri = f"{made.url}/v1/auth/oidc/work/callback"
    async with running(made):
        yield made


@pytest.fixture
async def page(service: Service, chromium: Browser) -> AsyncIterator[Page]:
    context = await profile(chromium)
    page = await context.new_page()
    threw: list[str] = []
    page.on("pageerror", lambda error: threw.append(str(error)))
    try:
        yield page
    finally:
        await context.close()
    assert threw == []


async def test_the_button_signs_in_and_the_account_ends_without_a_password(
    page: Page, service: Service, provider: FakeProvider
) -> None:
    await page.goto(service.url)
    await expect(page.get_by_label("Name")).to_be_focused()
    button = page.get_by_role("link", name="Sign in with Work")

    provider.error = "access_denied"
    await button.click()
    await expect(page.get_by_role("alert")).to_contain_text("cancelled or refused")
    assert await page.evaluate("() => location.hash") == ""

    provider.error = None
    await button.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="ana free")).to_be_visible()
    assert page.url == service.url + "/"
    assert await page.evaluate("() => document.cookie") == ""

    await page.get_by_role("button", name="ana free").click()
    await page.get_by_role("tab", name="Sessions").click()
    await expect(page.get_by_text("You sign in by: Work")).to_be_visible()
    await page.get_by_role("tab", name="Your data").click()
    await page.get_by_text("Delete the account").click()
    await expect(page.get_by_role("link", name="Sign in again with Work")).to_be_visible()
    await expect(page.get_by_label("Your password")).to_have_count(0)
    await page.get_by_role("button", name="Delete for good").click()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()

    # Nothing that was secret on the way is in the log.
    log = service.program.log.read_text()
    assert CLIENT_SECRET not in log
    assert not re.search(r"code=|state=|eyJ", log)
