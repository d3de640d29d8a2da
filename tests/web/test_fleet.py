"""The page in front of two gateways: what one streams the other can stop.

Over fakes, since their answers go on until they are stopped, however slow two cores are.
"""

from __future__ import annotations

import secrets

import pytest
from playwright.async_api import Browser, Page, expect

from tests.e2e.fleets import a_stage
from tests.web.person import LONG, SLOW_S, profile

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


async def test_a_stop_at_the_other_gateway_stops(chromium: Browser) -> None:
    """S-14."""
    async with a_stage(replicas=1, gateways=2, workers=1, step_s=SLOW_S) as stage:
        one, other = (role.url for role in stage.fleet.gateways)
        context = await profile(chromium)
        account = {"name": "ada", "password": secrets.token_hex(8)}
        made = await context.request.post(one + "/v1/auth/register", data=account)
        assert made.ok
        asking, stopping = await context.new_page(), await context.new_page()
        await asking.goto(one)
        await asking.locator(".composer-text").fill(LONG)
        await asking.locator(".composer-text").press("Enter")
        await expect(asking.locator(".prose")).to_be_visible()
        # Cookies know no ports: it is the same session, at the other gateway.
        await stopping.goto(other + "/c/" + asking.url.split("/c/")[1])
        await expect(stopping.locator(".prose")).to_be_visible()
        await stopping.get_by_role("button", name="Stop the answer").click()
        for page in (stopping, asking):
            await expect(page.get_by_text("Stopped.")).to_be_visible()
        assert await _said(asking) == await _said(stopping)
        await context.close()


async def _said(page: Page) -> str:
    return await page.locator(".message.reply .prose").inner_text()
