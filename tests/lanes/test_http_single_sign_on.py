"""Signing in by a provider: the whole way, whose account it is, and what the claims set."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from dataclasses import replace

import pytest

from tertulia.backends.openid import OpenIdProvider, Registration
from tertulia.core.identities import AccountRules
from tests.lanes.gateway_rig import PASSWORD, RULES
from tests.lanes.sign_on_rig import CALLBACK, PUBLIC, START, sign_on_rig
from tests.openid_provider import CLIENT_ID, CLIENT_SECRET

pytestmark = pytest.mark.anyio

BY_CLAIMS = AccountRules(
    admit=("example.org",),
    role_claim="realm_access.roles",
    roles={"chat-admins": "admin"},
    plan_claim="tier",
    plans={"gold": "plus"},
)


async def test_somebody_new_comes_in_and_is_known_the_next_time() -> None:
    async with sign_on_rig() as there:
        first, back = await there.sign_in()
        me = (await first.get("/v1/me")).json()
        second, _ = await there.sign_in()
        again = (await second.get("/v1/me")).json()
    assert (back.status_code, back.headers["location"]) == (303, "/")
    assert (me["name"], me["role"], me["plan"]) == ("ana", "user", "free")
    assert again["id"] == me["id"]
    start = PUBLIC + START
    way = {"name": "work", "title": "Work", "start": start}
    assert me["signIn"] == {"password": False, "providers": [way]}


async def test_the_page_is_told_how_one_may_sign_in() -> None:
    async with sign_on_rig(gateway_rules=replace(RULES, registration_open=False)) as there:
        told = (await there.here.client().get("/v1/auth/ways")).json()
    way = {"name": "work", "title": "Work", "start": PUBLIC + START}
    assert told == {"registration": False, "providers": [way]}


async def test_the_way_back_leads_to_the_page_that_one_came_from() -> None:
    async with sign_on_rig() as there:
        _, back = await there.sign_in(return_to="/c/c_01J9X4")
    assert back.headers["location"] == "/c/c_01J9X4"


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "/%2Fevil.example",
        "\\\\evil.example",
        "/c/../../v1",
        "/v1/auth/oidc/work/start",
        "javascript:alert(1)",
        "/c/x\r\nSet-Cookie: a=b",
        "/c/x?next=https://evil.example",
        "",
    ],
)
async def test_no_way_back_leads_elsewhere(elsewhere: str) -> None:
    async with sign_on_rig() as there:
        _, back = await there.sign_in(return_to=elsewhere)
    assert (back.status_code, back.headers["location"]) == (303, "/")


async def test_the_host_that_a_call_names_changes_no_address() -> None:
    async with sign_on_rig() as there:
        client = there.here.client(Host="evil.example")
        left = await client.get(START)
        told = (await client.get("/v1/auth/ways")).text
    assert "redirect_uri=http%3A%2F%2Fchat.example.org%2Fv1%2Fauth" in left.headers["location"]
    assert "evil" not in left.headers["location"] + told


async def test_the_cookies_are_for_this_host_and_no_script() -> None:
    async with sign_on_rig(gateway_rules=replace(RULES, secure_cookies=True)) as there:
        client = there.here.client()
        left = await client.get(START)
    cookie = left.headers["set-cookie"]
    assert cookie.startswith("__Host-tertulia_oidc_work=")
    fields = {field.strip().lower() for field in cookie.split(";")[1:]}
    assert fields == {"httponly", "max-age=600", "path=/", "samesite=lax", "secure"}


async def test_the_cookie_tells_nothing_of_what_was_begun() -> None:
    async with sign_on_rig() as there:
        client = there.here.client()
        left = await client.get(START)
        state = left.headers["location"].partition("state=")[2].partition("&")[0]
        sealed = client.cookies["tertulia_oidc_work"]
    assert state not in sealed
    assert len(sealed.split(".")) == 5  # encrypted, not only signed
    assert len(sealed) < 1500


async def test_an_old_session_of_the_browser_ends_with_the_sign_in() -> None:
    async with sign_on_rig() as there:
        client = await there.here.browser("before")
        old = client.cookies["tertulia_session"]
        await there.sign_in(client)
        name = (await client.get("/v1/me")).json()["name"]
        stale = await there.here.client(Cookie=f"tertulia_session={old}").get("/v1/me")
    assert (name, stale.status_code) == ("ana", 401)


async def test_a_taken_name_gets_a_number_and_nobody_gets_another_s_account() -> None:
    """Neither a name nor an address leads to an account: only issuer and subject do."""
    async with sign_on_rig() as there:
        local = await there.here.browser("ana")
        client, _ = await there.sign_in()
        mine, theirs = [(await one.get("/v1/me")).json() for one in (client, local)]
    assert (mine["name"], theirs["name"]) == ("ana-2", "ana")
    assert mine["id"] != theirs["id"]


async def test_the_same_address_with_another_subject_is_somebody_else() -> None:
    async with sign_on_rig() as there:
        first, _ = await there.sign_in()
        there.provider.spoil = {"sub": "another"}
        second, _ = await there.sign_in()
        ids = {(await one.get("/v1/me")).json()["id"] for one in (first, second)}
    assert len(ids) == 2


async def test_who_comes_at_once_from_two_browsers_gets_one_account() -> None:
    async with sign_on_rig() as there:
        both = await asyncio.gather(there.sign_in(), there.sign_in())
        ids = {(await client.get("/v1/me")).json()["id"] for client, _ in both}
    assert len(ids) == 1


async def test_claims_set_role_and_plan() -> None:
    async with sign_on_rig(BY_CLAIMS) as there:
        there.provider.spoil = {"realm_access": {"roles": ["x", "chat-admins"]}, "tier": "gold"}
        client, _ = await there.sign_in()
        me = (await client.get("/v1/me")).json()
        there.provider.spoil = {"realm_access": {"roles": []}, "tier": "silver"}
        await there.sign_in(client)
        later = (await client.get("/v1/me")).json()
    assert (me["role"], me["plan"]) == ("admin", "plus")
    assert (later["role"], later["plan"]) == ("user", "free")


async def test_an_absent_claim_changes_nothing() -> None:
    """S-51: what an administrator gave stays at each sign-in that says nothing about it."""
    async with sign_on_rig(BY_CLAIMS) as there:
        client, _ = await there.sign_in()
        user = (await client.get("/v1/me")).json()["id"]
        await there.here.backend.accounts.change(user, {"plan": "plus", "role": "admin"})
        await there.sign_in(client)
        me = (await client.get("/v1/me")).json()
    assert (me["role"], me["plan"]) == ("admin", "plus")


async def test_without_a_rule_claims_mean_nothing() -> None:
    async with sign_on_rig() as there:
        there.provider.spoil = {"role": "admin", "roles": ["admin"], "plan": "plus"}
        client, _ = await there.sign_in()
        me = (await client.get("/v1/me")).json()
    assert (me["role"], me["plan"]) == ("user", "free")


async def test_an_account_without_a_password_is_deleted_after_a_fresh_sign_in() -> None:
    async with sign_on_rig() as there:
        client, _ = await there.sign_in()
        user = (await client.get("/v1/me")).json()["id"]
        store = there.here.backend.store
        (token,) = store.sessions
        store.sessions[token] = replace(store.sessions[token], created_at=0.0)
        late = await client.request("DELETE", "/v1/me", json={"password": PASSWORD})
        export = await client.post("/v1/me/export", json={})
        await there.sign_in(client)
        gone = await client.delete("/v1/me")
        assert user not in str(store.identities) + str(store.users)
        back, _ = await there.sign_in()
        new = (await back.get("/v1/me")).json()
    assert (late.status_code, late.json()["code"]) == (403, "forbidden")
    assert "field" not in late.json()
    assert "Sign in again" in late.json()["detail"]
    assert (export.status_code, gone.status_code) == (403, 204)
    assert new["id"] != user
    assert new["name"] == "ana-2"  # the name stays taken, by a mark


async def test_no_password_opens_an_account_without_one() -> None:
    async with sign_on_rig() as there:
        await there.sign_in()
        client = there.here.client()
        tried = [
            await client.post("/v1/auth/login", json={"name": "ana", "password": password})
            for password in (PASSWORD, "None", " ")
        ]
    assert {one.status_code for one in tried} == {401}


async def test_an_export_says_by_what_one_signs_in() -> None:
    async with sign_on_rig() as there:
        client, _ = await there.sign_in()
        archive = await client.post("/v1/me/export")
        issuer = there.provider.url
    with zipfile.ZipFile(io.BytesIO(archive.content)) as opened:
        (name,) = [one for one in opened.namelist() if one.endswith("profile.json")]
        profile = json.loads(opened.read(name))
    (one,) = profile["signsInBy"]
    assert (one["issuer"], one["subject"]) == (issuer, "248289761001")


async def test_discovery_and_keys_are_asked_for_once_and_not_at_the_start() -> None:
    async with sign_on_rig() as there:
        assert there.provider.asked == {}
        for _ in range(3):
            await there.sign_in()
        asked = there.provider.asked
        there.clock.ahead_s = 3601
        await there.sign_in()
    assert asked["token"] == 4
    assert (asked["discovery"], asked["keys"]) == (2, 2)


async def test_another_gateway_ends_what_one_began() -> None:
    """Nothing of a sign-in is kept by the gateway that it began at."""
    async with sign_on_rig() as there:
        client = there.here.client(Origin=there.here.url)
        answer = await there.leave(client)
        sign_on = there.here.desk.sign_ons["work"]
        ours = Registration(
            there.provider.url, CLIENT_ID, CLIENT_SECRET, PUBLIC + CALLBACK, ("openid",)
        )
        other = replace(sign_on, provider=OpenIdProvider(ours, there.clock))
        there.here.desk.sign_ons["work"] = other  # type: ignore[index]  # as a second one has it
        await there.come_back(client, answer)
        me = await client.get("/v1/me")
    assert me.status_code == 200
