"""The operations page: for administrators, live, and what they do there takes effect.

Over the fake, whose answer does not end while something else is looked at.
"""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.e2e.processes import Service
from tests.web.person import LONG, SLOW_S, Person

pytestmark = pytest.mark.anyio


@pytest.fixture
def service(fake_service: Service) -> Service:
    """For all tests of this file."""
    return fake_service


async def test_an_administrator_sees_an_answer_run_and_sets_the_replica_aside(
    person: Person,
) -> None:
    await person.becomes_administrator()
    await person.has_plan("plus")
    await person.open()
    await person.ask(LONG)
    await person.talking()
    await person.service.pace(SLOW_S)
    await person.page.get_by_role("button", name="Operations").click()
    page = person.page
    assert page.url == person.url + "/operations"
    await expect(page.locator(".line")).to_have_text("live")
    row = page.locator("tr", has=page.locator(".state"))
    await expect(row.locator(".state")).to_have_text("ready")
    running = page.locator(".tiles > div", has_text="Answers running").locator("dd")
    await expect(running).to_have_text("1")
    await expect(page.locator(".chart canvas")).to_have_count(4)
    await row.get_by_role("button", name="Drain").click()
    await expect(row.locator(".state")).to_have_text("set aside")
    await row.get_by_role("button", name="Undrain").click()
    await expect(row.locator(".state")).to_have_text("ready")
    live = [address for address in person.addresses if address.endswith("/v1/admin/live")]
    assert len(live) == 1
    await page.go_back()
    await person.stop()


async def test_an_administrator_finds_an_account_and_changes_its_plan(person: Person) -> None:
    await person.becomes_administrator()
    await person.page.goto(person.url + "/operations")
    page = person.page
    await page.get_by_role("button", name="Users").click()
    await page.get_by_label("Name of an account").fill(person.name)
    await page.get_by_role("button", name="Find").click()
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.get_by_label(f"Plan of {person.name}").select_option("plus")
    await expect(page.locator(".toast")).to_contain_text("Changed")
    await expect(page.get_by_label(f"Role of {person.name}")).to_be_disabled()
    me = await person.context.request.get(person.url + "/v1/me")
    assert (await me.json())["plan"] == "plus"


async def test_nobody_else_finds_a_way_to_it(person: Person) -> None:
    await person.open()
    await expect(person.page.get_by_role("button", name="Operations")).to_have_count(0)
    await person.page.goto(person.url + "/operations")
    await expect(person.page.locator(".line")).to_have_text("for administrators only")
    await expect(person.page.locator(".operation-body")).to_contain_text("for administrators")
