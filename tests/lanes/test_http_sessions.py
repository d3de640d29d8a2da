"""The browsers that are signed in: seen by their owner alone, and signed out one by one or all."""

from __future__ import annotations

import httpx2
import pytest

from tests.lanes.gateway_rig import PASSWORD, Rig, rig

pytestmark = pytest.mark.anyio


async def signed_in(here: Rig, name: str) -> httpx2.AsyncClient:
    """The same person in one more browser."""
    client = here.client(Origin=here.url)
    made = await client.post("/v1/auth/login", json={"name": name, "password": PASSWORD})
    assert made.status_code == 200, made.text
    return client


async def listed(client: httpx2.AsyncClient) -> list[dict[str, object]]:
    items: list[dict[str, object]] = (await client.get("/v1/sessions")).json()["items"]
    return items


async def test_a_person_sees_each_browser_and_which_is_this_one() -> None:
    async with rig() as here:
        one = await here.browser("ana")
        other = await signed_in(here, "ana")
        await here.browser("ben")
        seen, seen_there = await listed(one), await listed(other)
    assert [item["isCurrent"] for item in seen] == [False, True]
    assert [item["isCurrent"] for item in seen_there] == [True, False]
    assert [item["id"] for item in seen] == [item["id"] for item in seen_there]
    assert set(seen[0]) == {"id", "createdAt", "expiresAt", "isCurrent"}


async def test_a_browser_that_is_signed_out_is_out_at_once_and_the_others_are_not() -> None:
    async with rig() as here:
        one = await here.browser("ana")
        other, third = [await signed_in(here, "ana") for _ in range(2)]
        [theirs] = [item["id"] for item in await listed(other) if item["isCurrent"]]
        ended = await one.delete(f"/v1/sessions/{theirs}")
        again = await one.delete(f"/v1/sessions/{theirs}")
        assert (await other.get("/v1/me")).status_code == 401
        assert (await third.get("/v1/me")).status_code == 200
        assert len(await listed(one)) == 2
    assert (ended.status_code, again.status_code) == (204, 404)


async def test_all_others_are_signed_out_and_this_one_stays() -> None:
    async with rig() as here:
        one = await here.browser("ana")
        other = await signed_in(here, "ana")
        stranger = await here.browser("ben")
        assert (await one.delete("/v1/sessions")).status_code == 204
        assert (await other.get("/v1/me")).status_code == 401
        assert (await stranger.get("/v1/me")).status_code == 200
        assert [item["isCurrent"] for item in await listed(one)] == [True]


async def test_a_program_signs_out_all_of_its_owner_and_nobody_elses() -> None:
    async with rig() as here:
        program = await here.user("ana")
        browser, stranger = await signed_in(here, "ana"), await here.browser("ben")
        [theirs] = await listed(stranger)
        assert (await program.delete(f"/v1/sessions/{theirs['id']}")).status_code == 404
        assert not any(item["isCurrent"] for item in await listed(program))
        assert (await program.delete("/v1/sessions")).status_code == 204
        assert (await browser.get("/v1/me")).status_code == 401
        assert (await stranger.get("/v1/me")).status_code == 200


async def test_a_foreign_page_signs_nobody_out() -> None:
    async with rig() as here:
        browser = await here.browser("ana")
        evil = {"Origin": "https://elsewhere.example"}
        refused = await browser.delete("/v1/sessions", headers=evil)
    assert (refused.status_code, refused.json()["code"]) == (403, "csrf")
