"""Accounts, sessions, keys and what ends them; who may ask from where."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime

import httpx2
import pytest

from tertulia.backends.clock import SystemClock
from tertulia.gateway import streams
from tertulia.gateway.auth import secret_hash
from tests.lanes.gateway_rig import (
    PASSWORD,
    RULES,
    Rig,
    ScriptedReplicas,
    admin_user,
    ask,
    ask_later,
    events,
    new_conversation,
    rig,
    until,
)

pytestmark = pytest.mark.anyio


async def sign_in(here: Rig, name: str, password: str = PASSWORD) -> httpx2.Response:
    return await here.client().post("/v1/auth/login", json={"name": name, "password": password})


async def test_a_new_account_is_signed_in_on_the_free_plan() -> None:
    async with rig() as here:
        client = here.client(Origin=here.url)
        made = await client.post("/v1/auth/register", json={"name": "Ana", "password": PASSWORD})
        me = await client.get("/v1/me")
    assert made.status_code == 200
    assert {**made.json(), "id": ""} == {"id": "", "name": "Ana", "role": "user", "plan": "free"}
    assert me.json()["id"] == made.json()["id"]
    assert [budget["name"] for budget in me.json()["budgets"]] == [
        "units_3h",
        "replies_running",
    ]


async def test_the_budgets_count_down_and_name_their_reset() -> None:
    async with rig() as here:
        client = await here.user("ana")
        streamed = await ask(client, await new_conversation(client))
        units, running = (await client.get("/v1/me")).json()["budgets"]
    charged = events(streamed.text)[-1][2]["charged"]
    # Some of it has come back since, in parts of a unit.
    assert -1 <= units["remaining"] - (units["limit"] - charged) <= 1
    assert (units["unit"], units["refillSeconds"]) == ("units", 10_800)
    wait_s = datetime.fromisoformat(units["resetAt"]).timestamp() - here.desk.clock.now()
    assert wait_s <= 10_800 * charged / 100_000
    assert running == {
        "name": "replies_running",
        "unit": "replies",
        "limit": 2,
        "remaining": 2,
        "resetAt": None,
    }


async def test_the_message_limit_shown_is_the_one_that_is_kept() -> None:
    async with rig() as here:
        client = await here.user("ana")
        limit = (await client.get("/v1/me")).json()["limits"]["messageTokens"]
        conversation = await new_conversation(client)
        fits = await ask(client, conversation, "x" * limit, key="fits")
        over = await ask(client, conversation, "x" * (limit + 1), key="over")
    assert fits.status_code == 200
    assert (over.status_code, over.json()["limit"]) == (413, limit)


@pytest.mark.parametrize("name", ["", "a", "a b", "x" * 65, "<b>", "a\nb", "a/b", "é" * 65])
async def test_a_name_that_can_not_be_one_is_refused(name: str) -> None:
    async with rig() as here:
        made = await here.client().post(
            "/v1/auth/register", json={"name": name, "password": PASSWORD}
        )
    assert (made.status_code, made.json()["field"]) == (400, "name")


@pytest.mark.parametrize("password", ["", "123456789", "x" * 201])
async def test_a_password_has_10_to_200_characters(password: str) -> None:
    async with rig() as here:
        made = await here.client().post(
            "/v1/auth/register", json={"name": "ana", "password": password}
        )
    assert (made.status_code, made.json()["field"]) == (400, "password")


@pytest.mark.parametrize("extra", ["plan", "role", "id", "userId"])
async def test_nobody_chooses_their_own_plan_or_role(extra: str) -> None:
    """T15, T16."""
    async with rig() as here:
        body = {"name": "ana", "password": PASSWORD, extra: "plus"}
        made = await here.client().post("/v1/auth/register", json=body)
        client = await here.user("ben")
        client.headers.update({"X-User-Id": "u_1", "X-Forwarded-User": "root", "X-Plan": "plus"})
        me = (await client.get("/v1/me?user_id=u_1&plan=plus")).json()
    assert (made.status_code, made.json()["field"]) == (400, extra)
    assert (me["name"], me["plan"]) == ("ben", "free")


async def test_registration_can_be_closed() -> None:
    async with rig(rules=replace(RULES, registration_open=False)) as here:
        body = {"name": "ana", "password": PASSWORD}
        made = await here.client().post("/v1/auth/register", json=body)
    assert (made.status_code, made.json()["code"]) == (403, "forbidden")


async def test_wrong_name_wrong_password_and_closed_account_answer_the_same() -> None:
    """T49: the same bytes and the same work."""
    async with rig() as here:
        await here.user("ana")
        closed = await here.browser("ben")
        user_id = (await closed.get("/v1/me")).json()["id"]
        await here.backend.accounts.change(user_id, {"disabled": True})
        await here.backend.accounts.add(admin_user(here.backend))  # has no password
        answers = [
            await sign_in(here, "nobody"),
            await sign_in(here, "ana", "the wrong password"),
            await sign_in(here, "ben"),
            await sign_in(here, "root"),
        ]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.content for answer in answers}) == 1


async def test_signing_in_ignores_the_case_of_the_name() -> None:
    async with rig() as here:
        await here.user("Ana")
        answer = await sign_in(here, "aNA")
    assert answer.status_code == 200


async def test_guesses_are_throttled_for_known_and_unknown_names_alike() -> None:
    async with rig() as here:
        await here.user("ana")
        for name in ("ana", "nobody"):
            statuses = [(await sign_in(here, name, "wrong")).status_code for _ in range(12)]
            assert statuses == [401] * 10 + [429] * 2


async def test_the_cookie_is_for_this_host_alone_and_no_script_reads_it() -> None:
    """T27."""
    async with rig() as here:
        plain = (await _registered(here)).headers["set-cookie"]
    async with rig(rules=replace(RULES, secure_cookies=True)) as here:
        secure = (await _registered(here)).headers["set-cookie"]
    assert plain.startswith("tertulia_session=")
    assert secure.startswith("__Host-tertulia_session=")
    for cookie in (plain, secure):
        parts = {part.strip().lower() for part in cookie.split(";")}
        assert {"httponly", "samesite=lax", "path=/"} <= parts
        assert not any(part.startswith("domain") for part in parts)
    assert "Secure" in secure
    assert "Secure" not in plain


async def test_a_session_planted_before_sign_in_is_worth_nothing() -> None:
    """T26."""
    async with rig() as here:
        await here.user("ana")
        victim = here.client(Origin=here.url)
        victim.cookies.set("tertulia_session", "planted", domain="127.0.0.1")
        body = {"name": "ana", "password": PASSWORD}
        await victim.post("/v1/auth/login", json=body)
        first = victim.cookies["tertulia_session"]
        await victim.post("/v1/auth/login", json=body)
        second = victim.cookies["tertulia_session"]
        stale = await _me_with_cookie(here, first)
        fresh = await _me_with_cookie(here, second)
        planted = await _me_with_cookie(here, "planted")
    assert len({first, second, "planted"}) == 3
    assert (stale, planted, fresh) == (401, 401, 200)


async def test_signing_out_ends_the_session_and_clears_the_browser() -> None:
    async with rig() as here:
        browser = await here.browser("ana")
        token = browser.cookies["tertulia_session"]
        out = await browser.post("/v1/auth/logout")
        after = await _me_with_cookie(here, token)
        twice = await browser.post("/v1/auth/logout")
    assert out.status_code == twice.status_code == 204
    assert out.headers["clear-site-data"] == '"cache", "cookies", "storage"'
    assert after == 401


async def test_a_sign_in_link_works_once_and_only_by_post() -> None:
    async with rig() as here:
        await here.backend.accounts.add(admin_user(here.backend))
        await here.backend.sessions.add_link("u_admin", secret_hash("one-time"), lasts_s=60)
        client = here.client(Origin=here.url)
        read = await client.get("/v1/auth/link?token=one-time")
        first = await client.post("/v1/auth/link", json={"token": "one-time"})
        again = await here.client().post("/v1/auth/link", json={"token": "one-time"})
        me = await client.get("/v1/me")
    assert (read.status_code, first.status_code, again.status_code) == (405, 200, 401)
    assert me.json()["role"] == "admin"


async def test_a_key_is_shown_once_and_stored_hashed() -> None:
    async with rig() as here:
        client = await here.user("ana")
        made = await client.post("/v1/api-keys", json={"name": "laptop"})
        secret = made.json()["secret"]
        listed = await client.get("/v1/api-keys")
        works = await here.client(Authorization=f"Bearer {secret}").get("/v1/me")
        stored = here.backend.store.api_keys.values()
        assert not any(secret in str(key) for key in stored)
    assert made.status_code == 201
    assert secret.startswith("tk_")
    assert len(secret) >= 46
    assert secret not in listed.text
    assert works.status_code == 200
    assert set(listed.json()["items"][0]) == {"id", "name", "prefix", "createdAt", "lastUsedAt"}


async def test_a_revoked_key_is_refused_at_once_and_nobody_elses_can_be_revoked() -> None:
    async with rig() as here:
        ana, ben = await here.user("ana"), await here.user("ben")
        key_id = (await ana.get("/v1/api-keys")).json()["items"][0]["id"]
        foreign = await ben.delete(f"/v1/api-keys/{key_id}")
        own = await ana.delete(f"/v1/api-keys/{key_id}")
        after = await ana.get("/v1/me")
    assert (foreign.status_code, own.status_code, after.status_code) == (404, 204, 401)


@pytest.mark.parametrize(
    "given",
    ["Bearer tk_wrong", "Bearer", "Basic YTpi", "tk_wrong", "Bearer tk_" + "x" * 5_000, "é"],
)
async def test_a_wrong_credential_is_401_even_beside_a_good_cookie(given: str) -> None:
    async with rig() as here:
        browser = await here.browser("ana")
        answer = await browser.get("/v1/me", headers={b"Authorization": given.encode("latin-1")})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


FOREIGN: list[dict[str, str]] = [
    {},
    {"Origin": "https://elsewhere.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "http://["},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "none"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "OWN"},
]


@pytest.mark.parametrize("sent", FOREIGN, ids=str)
async def test_a_cookie_alone_moves_nothing(sent: dict[str, str]) -> None:
    """T25."""
    async with rig() as here:
        browser = await here.browser("ana")
        del browser.headers["Origin"]
        headers = {name: value.replace("OWN", here.url) for name, value in sent.items()}
        answers = [
            await browser.post("/v1/conversations", json={}, headers=headers),
            await browser.request("DELETE", "/v1/me", json={}, headers=headers),
            await browser.post("/v1/auth/logout", headers=headers),
        ]
        reads = await browser.get("/v1/me", headers=headers)
        assert not here.backend.store.conversations
    assert {(a.status_code, a.json()["code"]) for a in answers} == {(403, "csrf")}
    assert reads.status_code == 200


async def test_our_own_page_and_programs_may_write() -> None:
    async with rig() as here:
        browser = await here.browser("ana")
        by_origin = await browser.post("/v1/conversations", json={})
        by_site = await browser.post(
            "/v1/conversations", json={}, headers={"Sec-Fetch-Site": "same-origin", "Origin": ""}
        )
        program = await here.user("ben")
        by_key = await program.post("/v1/conversations", json={})
    assert [a.status_code for a in (by_origin, by_site, by_key)] == [201, 201, 201]


async def test_another_site_can_not_sign_its_visitor_in() -> None:
    async with rig() as here:
        await here.user("ana")
        answer = await here.client(Origin="https://elsewhere.example").post(
            "/v1/auth/login", json={"name": "ana", "password": PASSWORD}
        )
    assert (answer.status_code, answer.json()["code"]) == (403, "csrf")


async def test_signing_out_ends_open_streams_within_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """T28: the recheck is shortened; the resume is then 401."""
    monkeypatch.setattr(streams, "_RECHECK_S", 0.01)
    async with rig(replicas=ScriptedReplicas(before_hold=3)) as here:
        browser = await here.browser("ana")
        conversation = await new_conversation(browser)
        posted = (await ask_later(browser, conversation)).json()
        following = asyncio.create_task(
            here.client(Cookie=f"tertulia_session={browser.cookies['tertulia_session']}").get(
                posted["streamUrl"]
            )
        )
        await until(lambda: len(here.desk.streams))
        await browser.post("/v1/auth/logout")
        seen = await asyncio.wait_for(following, 10)
        resumed = await browser.get(posted["streamUrl"])
    assert "done" not in [kind for _, kind, _ in events(seen.text)]
    assert resumed.status_code == 401


async def test_a_revoked_key_is_given_no_whole_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_RECHECK_S", 0.01)
    async with rig(replicas=ScriptedReplicas(before_hold=3)) as here:
        browser = await here.browser("ana")
        made = (await browser.post("/v1/api-keys", json={"name": "k"})).json()
        program = here.client(Authorization=f"Bearer {made['secret']}")
        said = {"model": "auto", "messages": [{"role": "user", "content": "Why?"}]}
        asking = asyncio.create_task(program.post("/v1/chat/completions", json=said))
        await until(lambda: here.replicas.asked)
        await browser.delete(f"/v1/api-keys/{made['id']}")
        answer = await asyncio.wait_for(asking, 10)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthenticated")


async def test_leaving_deletes_everything() -> None:
    async with rig() as here:
        browser = await here.browser("ana")
        key = (await browser.post("/v1/api-keys", json={"name": "k"})).json()["secret"]
        await ask(browser, await new_conversation(browser))
        await ask(browser, await new_conversation(browser))
        said = {"model": "auto", "messages": [{"role": "user", "content": "Why?"}]}
        assert (await browser.post("/v1/chat/completions", json=said)).status_code == 200
        left = await browser.delete("/v1/me")
        by_key = await here.client(Authorization=f"Bearer {key}").get("/v1/me")
        again = await sign_in(here, "ana")
        assert not here.backend.store.conversations
        assert not here.backend.store.messages
        assert not here.backend.store.turns
    assert left.status_code == 204
    assert (by_key.status_code, again.status_code) == (401, 401)


async def test_leaving_without_a_fresh_sign_in_needs_the_password() -> None:
    """T46."""
    async with rig() as here:
        program = await here.user("ana")
        without = await program.delete("/v1/me")
        wrong = await program.request("DELETE", "/v1/me", json={"password": "wrong"})
        right = await program.request("DELETE", "/v1/me", json={"password": PASSWORD})
    assert (without.status_code, wrong.status_code, right.status_code) == (403, 403, 204)


class HourBehind(SystemClock):
    def now(self) -> float:
        return super().now() - 3600


async def test_a_sign_in_is_as_old_as_the_store_says() -> None:
    """T14, T46: to a gateway whose clock is behind every session would be a fresh one."""
    async with rig(change_desk=lambda desk: replace(desk, clock=HourBehind())) as here:
        browser = await here.browser("ana")
        sessions = here.backend.sessions._store.sessions
        for token_hash, stored in list(sessions.items()):
            sessions[token_hash] = replace(stored, created_at=stored.created_at - 600)
        answer = await browser.delete("/v1/me")
    assert answer.status_code == 403


async def test_a_disabled_account_stops_at_once() -> None:
    """S-50."""
    async with rig(replicas=ScriptedReplicas(before_hold=3)) as here:
        admin = await here.user("root", role="admin")
        ana = await here.user("ana")
        posted = (await ask_later(ana, await new_conversation(ana))).json()
        user_id = (await ana.get("/v1/me")).json()["id"]
        changed = await admin.patch(f"/v1/admin/users/{user_id}", json={"disabled": True})
        after = await ana.get("/v1/me")
        login = await sign_in(here, "ana")
        turn = here.backend.store.turns[posted["messageId"]]
    assert (changed.status_code, changed.json()["disabled"]) == (200, True)
    assert (after.status_code, login.status_code) == (401, 401)
    assert turn.status == "stopped"


async def test_an_administrator_changes_a_plan_and_can_not_lock_themselves_out() -> None:
    async with rig() as here:
        admin = await here.user("root", role="admin")
        ana = await here.user("ana")
        found = (await admin.get("/v1/admin/users?name=ANA")).json()["items"][0]
        url = f"/v1/admin/users/{found['id']}"
        plus = await admin.patch(url, json={"plan": "plus"})
        gold = await admin.patch(url, json={"plan": "gold"})
        nobody = await admin.patch("/v1/admin/users/u_none", json={"plan": "plus"})
        own = (await admin.get("/v1/me")).json()["id"]
        locked = await admin.patch(f"/v1/admin/users/{own}", json={"disabled": True})
        me = (await ana.get("/v1/me")).json()
    assert (plus.status_code, me["plan"]) == (200, "plus")
    assert (gold.status_code, nobody.status_code, locked.status_code) == (400, 404, 400)


async def _registered(here: Rig) -> httpx2.Response:
    return await here.client().post("/v1/auth/register", json={"name": "ana", "password": PASSWORD})


async def _me_with_cookie(here: Rig, token: str) -> int:
    client = here.client(Cookie=f"tertulia_session={token}")
    return (await client.get("/v1/me")).status_code


async def test_an_administrator_makes_a_link_that_signs_in_once() -> None:
    async with rig() as here:
        admin = await here.user("root", role="admin")
        ana = await here.user("ana")
        refused = await ana.post("/v1/admin/sign-in-links")
        made = await admin.post("/v1/admin/sign-in-links")
        browser = here.client(Origin=here.url)
        first = await browser.post("/v1/auth/link", json={"token": made.json()["token"]})
        again = await browser.post("/v1/auth/link", json={"token": made.json()["token"]})
    assert (refused.status_code, made.status_code) == (403, 201)
    assert (first.json()["name"], again.status_code) == ("root", 401)
