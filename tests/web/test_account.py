"""A person's own things: instructions, what goes out and comes in, sessions, language."""

from __future__ import annotations

import json
from pathlib import Path
from zipfile import ZipFile

import pytest
from playwright.async_api import Browser, Locator, expect

from tests.lanes.moving_rig import chatgpt
from tests.web.person import SHORT, Person, profile

pytestmark = pytest.mark.anyio


async def section(person: Person, name: str) -> Locator:
    """The account box at one of its sections."""
    dialog = person.page.get_by_role("dialog")
    if not await dialog.count():
        await person.page.locator(".me").click()
    await dialog.get_by_role("tab", name=name).click()
    return dialog.get_by_role("tabpanel")


async def test_instructions_are_written_kept_and_taken_back(person: Person) -> None:
    await person.open()
    panel = await section(person, "Instructions")
    await panel.get_by_label("Instructions").last.fill("Answer in one sentence.")
    await panel.get_by_role("button", name="Save").click()
    await expect(panel).to_contain_text("of at most")
    await person.page.reload()
    panel = await section(person, "Instructions")
    text = panel.get_by_role("textbox")
    await expect(text).to_have_value("Answer in one sentence.")
    await text.fill("")
    await panel.get_by_role("button", name="Save").click()
    await expect(person.page.locator(".toast")).to_contain_text("deleted")
    told = await person.context.request.get(person.url + "/v1/me/instructions")
    assert (await told.json())["text"] == ""


async def test_everything_goes_out_and_comes_in_again_once(person: Person, tmp_path: Path) -> None:
    """S-30: and what is no tree stays out, which is told."""
    await person.plant("Where do herons sleep?", "In reeds.")
    await person.open()
    panel = await section(person, "Your data")
    async with person.page.expect_download() as coming:
        await panel.get_by_role("button", name="Export everything").click()
    file = tmp_path / "all.zip"
    await (await coming.value).save_as(file)
    with ZipFile(file) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
    assert sum(name.endswith(".md") for name in names) == 1
    await panel.get_by_label("File to import").set_input_files(file)
    await expect(panel.locator(".report")).to_contain_text("1 were here already.")
    circle = chatgpt("circle")
    circle["mapping"]["q"]["parent"] = "a1"
    strange = tmp_path / "other.json"
    strange.write_text(json.dumps([circle, {"no": "export"}]))
    await panel.get_by_label("File to import").set_input_files(strange)
    await expect(panel.locator(".report")).to_contain_text("2 stayed out.")
    assert person.count("conversations") == 1


async def test_another_browser_is_seen_and_signed_out(stranger: Person, chromium: Browser) -> None:
    account = {"name": stranger.name, "password": "five-quiet-herons"}
    made = await stranger.context.request.post(stranger.url + "/v1/auth/register", data=account)
    assert made.ok
    stranger.id = (await made.json())["id"]
    other = await profile(chromium)
    try:
        entered = await other.request.post(stranger.url + "/v1/auth/login", data=account)
        assert entered.ok
        await stranger.open()
        panel = await section(stranger, "Sessions")
        await expect(panel.locator("li")).to_have_count(2)
        await panel.get_by_role("button", name="Sign out").click()
        await expect(panel.locator("li")).to_have_count(1)
        await expect(panel.locator("li")).to_contain_text("This browser")
        assert (await other.request.get(stranger.url + "/v1/me")).status == 401
    finally:
        await other.close()


async def test_the_page_speaks_spanish_and_still_does_after_a_reload(person: Person) -> None:
    await person.plant(SHORT, "Hello.")
    await person.open()
    panel = await section(person, "Look and language")
    await panel.get_by_role("combobox", name="Language").select_option("es")
    await expect(person.page.get_by_role("dialog")).to_have_accessible_name("Cuenta")
    await person.page.reload()
    await expect(person.page.get_by_role("button", name="Nuevo chat")).to_be_visible()
    assert await person.page.evaluate("() => document.documentElement.lang") == "es"
    await expect(person.page.locator(".list h2")).to_have_text("Hoy")
