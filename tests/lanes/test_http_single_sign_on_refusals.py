"""What a sign-in by a provider is refused for: one word to the page, and nobody is signed in."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from tertulia.core.identities import AccountRules
from tests.lanes.gateway_rig import PASSWORD
from tests.lanes.sign_on_rig import CALLBACK, START, sign_on_rig
from tests.openid_provider import (
    FakeProvider,
    by_a_stranger,
    by_nobody,
    by_the_public_key,
    new_key,
    signed,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("state", ["wrong", "", "ñ"])
async def test_another_state(state: str) -> None:
    async with sign_on_rig() as there:
        client = there.here.client()
        answer = await there.leave(client)
        back = await there.come_back(client, answer, state=state)
        assert await there.why(client, back) == "expired"


async def test_no_cookie() -> None:
    """A page elsewhere that sends its visitor here with a code of its own signs nobody in."""
    async with sign_on_rig() as there:
        answer = await there.leave(there.here.client())
        victim = there.here.client()
        back = await there.come_back(victim, answer)
        assert await there.why(victim, back) == "expired"


async def test_the_cookie_of_another_browser() -> None:
    async with sign_on_rig() as there:
        attacker, victim = there.here.client(), there.here.client()
        answer = await there.leave(attacker)
        await there.leave(victim)
        back = await there.come_back(victim, answer)
        assert await there.why(victim, back) == "expired"


@pytest.mark.parametrize("sealed", ["", "x", "a.b.c.d.e", "x" * 5000])
async def test_a_cookie_that_was_not_sealed_here(sealed: str) -> None:
    async with sign_on_rig() as there:
        answer = await there.leave(there.here.client())
        client = there.here.client(Cookie=f"tertulia_oidc_work={sealed}")
        back = await there.come_back(client, answer)
        assert await there.why(client, back) == "expired"


async def test_a_cookie_that_was_changed() -> None:
    async with sign_on_rig() as there:
        client = there.here.client()
        answer = await there.leave(client)
        head, key, number, text, tag = client.cookies["tertulia_oidc_work"].split(".")
        other = ("A" if text[0] != "A" else "B") + text[1:]
        changed = ".".join((head, key, number, other, tag))
        second = there.here.client(Cookie=f"tertulia_oidc_work={changed}")
        assert await there.why(second, await there.come_back(second, answer)) == "expired"


async def test_the_same_way_back_a_second_time() -> None:
    async with sign_on_rig() as there:
        client = there.here.client(Origin=there.here.url)
        answer = await there.leave(client)
        sealed = client.cookies["tertulia_oidc_work"]
        first = await there.come_back(client, answer)
        assert first.headers["location"] == "/"
        asked = there.provider.asked["token"]
        # Whoever kept the cookie and the address has nothing: the provider isn't even asked.
        again = there.here.client(Cookie=f"tertulia_oidc_work={sealed}")
        back = await there.come_back(again, answer)
        assert await there.why(again, back) == "expired"
        assert there.provider.asked["token"] == asked


async def test_the_cookie_is_gone_after_the_way_back() -> None:
    async with sign_on_rig() as there:
        client, back = await there.sign_in()
        assert "tertulia_oidc_work" not in client.cookies
        assert 'tertulia_oidc_work=""' in back.headers.get_list("set-cookie")[-1]


async def test_ten_minutes_and_more_later() -> None:
    async with sign_on_rig() as there:
        client = there.here.client()
        answer = await there.leave(client)
        there.clock.ahead_s = 601
        back = await there.come_back(client, answer)
        assert await there.why(client, back) == "expired"


@pytest.mark.parametrize(
    "spoil",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "another"},
        {"aud": None},
        {"aud": "another", "azp": "tertulia"},
        {"aud": ["another"]},
        {"aud": ["another", "tertulia"]},  # without a word for whom of them it is
        {"azp": "another"},
        {"iss": "https://id.example.org"},
        {"iss": None},
        {"exp": int(time.time()) - 3600},
        {"exp": None},
        {"exp": "never"},
        {"iat": int(time.time()) + 3600},
        {"iat": None},
        {"nbf": int(time.time()) + 3600},
        {"sub": None},
        {"sub": ""},
        {"sub": 5},
        {"sub": "x" * 256},
        {"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"},
    ],
    ids="-".join,  # without the moments, which differ from process to process
)
async def test_a_token_in_which_something_is_wrong(spoil: dict[str, Any]) -> None:
    async with sign_on_rig() as there:
        assert await there.refused(**spoil) == "provider_untrusted"


async def test_several_audiences_of_which_we_are_the_one_that_asked() -> None:
    async with sign_on_rig() as there:
        there.provider.spoil = {"aud": ["another", "tertulia"], "azp": "tertulia"}
        _, back = await there.sign_in()
    assert back.headers["location"] == "/"


def _nothing(_provider: FakeProvider, _claims: dict[str, Any]) -> str:
    return ""


def _rubbish(_provider: FakeProvider, _claims: dict[str, Any]) -> str:
    return "a.b.c"


def _cut(provider: FakeProvider, claims: dict[str, Any]) -> str:
    return signed(provider, claims).rpartition(".")[0] + "."


def _changed(provider: FakeProvider, claims: dict[str, Any]) -> str:
    head, _, tail = signed(provider, claims).split(".")
    _, body, _ = signed(provider, claims | {"sub": "admin"}).split(".")
    return f"{head}.{body}.{tail}"


@pytest.mark.parametrize(
    "sign",
    [by_a_stranger, by_nobody, by_the_public_key, _nothing, _rubbish, _cut, _changed],
)
async def test_a_signature_that_proves_nothing(
    sign: Callable[[FakeProvider, dict[str, Any]], str],
) -> None:
    async with sign_on_rig() as there:
        there.provider.sign = sign
        assert await there.refused() == "provider_untrusted"


async def test_a_new_key_is_fetched_and_one_that_nobody_has_is_refused() -> None:
    async with sign_on_rig() as there:
        await there.sign_in()
        there.provider.keys.append(new_key("second"))
        _, back = await there.sign_in()
        assert back.headers["location"] == "/"
        assert there.provider.asked["keys"] == 2
        there.provider.sign = lambda provider, claims: by_a_stranger(
            FakeProvider(keys=[new_key("third")]), claims
        )
        assert await there.refused() == "provider_untrusted"
        # Such tokens do not have the keys fetched time and again.
        assert await there.refused() == "provider_untrusted"
        assert there.provider.asked["keys"] == 2
        there.clock.ahead_s = 6
        assert await there.refused() == "provider_untrusted"
        assert there.provider.asked["keys"] == 3


async def test_a_shared_secret_among_the_public_keys_proves_nothing() -> None:
    async with sign_on_rig() as there:
        there.provider.broken["keys"] = JSONResponse(
            {"keys": [{"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQ", "kid": "first"}]}
        )
        assert await there.refused() == "provider_away"


@pytest.mark.parametrize("error", ["access_denied", "<script>alert(1)</script>"])
async def test_an_error_instead_of_a_code(error: str) -> None:
    async with sign_on_rig() as there:
        there.provider.error = error
        client, back = await there.sign_in()
        assert await there.why(client, back) == "provider_refused"
        assert "token" not in there.provider.asked


async def test_a_code_that_the_provider_does_not_take() -> None:
    async with sign_on_rig() as there:
        client = there.here.client()
        answer = await there.leave(client)
        back = await there.come_back(client, answer, code="another")
        assert await there.why(client, back) == "provider_refused"


async def test_a_code_that_was_given_to_another_browser() -> None:
    """The code alone is worth nothing: its flow's verifier is in the cookie (PKCE)."""
    async with sign_on_rig() as there:
        victim, attacker = there.here.client(), there.here.client()
        stolen = httpx2.URL((await there.leave(victim)).headers["location"]).params["code"]
        answer = await there.leave(attacker)
        back = await there.come_back(attacker, answer, code=stolen)
        assert await there.why(attacker, back) == "provider_refused"


async def test_an_answer_that_names_another_issuer() -> None:
    async with sign_on_rig() as there:
        client = there.here.client()
        answer = await there.leave(client)
        back = await there.come_back(client, answer, iss="https://id.example.org")
        assert await there.why(client, back) == "provider_untrusted"


async def test_an_answer_that_names_no_issuer_though_the_provider_always_does() -> None:
    async with sign_on_rig() as there:
        there.provider.says["authorization_response_iss_parameter_supported"] = True
        assert await there.refused() == "provider_untrusted"
        client = there.here.client(Origin=there.here.url)
        answer = await there.leave(client)
        back = await there.come_back(client, answer, iss=there.provider.url)
        assert back.headers["location"] == "/"


TOO_LONG = PlainTextResponse("{" + " " * 300_000 + "}")


@pytest.mark.parametrize(
    "answer",
    [
        Response(status_code=500),
        Response(status_code=404),
        RedirectResponse("http://127.0.0.1:9/"),
        PlainTextResponse("<html>"),
        PlainTextResponse("[]"),
        PlainTextResponse("[" * 100_000),
        TOO_LONG,
        Response(b"\x1f\x8b", headers={"Content-Encoding": "gzip"}),
    ],
    ids=["fault", "nowhere", "redirect", "a page", "a list", "nested", "too long", "packed"],
)
@pytest.mark.parametrize("call", ["discovery", "keys", "token"])
async def test_an_answer_that_is_none(call: str, answer: Response) -> None:
    async with sign_on_rig() as there:
        there.provider.broken[call] = answer
        client = there.here.client()
        if call == "discovery":
            back = await client.get(START)
        else:
            back = await there.come_back(client, await there.leave(client))
        why = await there.why(client, back)
    assert why in ("provider_away", "provider_refused") if call == "token" else "provider_away"


async def test_an_answer_that_is_right_but_packed() -> None:
    """Unpacked it could be of any length."""
    async with sign_on_rig() as there:
        keys = {"keys": [key.as_dict(private=False) for key in there.provider.keys]}
        packed = gzip.compress(json.dumps(keys).encode())
        there.provider.broken["keys"] = Response(packed, headers={"Content-Encoding": "gzip"})
        assert await there.refused() == "provider_away"


@pytest.mark.parametrize("call", ["discovery", "keys", "token"])
async def test_a_provider_that_does_not_answer(call: str) -> None:
    async with sign_on_rig(answer_s=0.3) as there:
        there.provider.silent.add(call)
        client = there.here.client()
        if call == "discovery":
            back = await client.get(START)
        else:
            back = await there.come_back(client, await there.leave(client))
        assert await there.why(client, back) == "provider_away"


@pytest.mark.parametrize(
    "says",
    [
        {"issuer": "https://id.example.org"},
        {"issuer": None},
        {"token_endpoint": "http://169.254.169.254/latest"},
        {"token_endpoint": "file:///etc/passwd"},
        {"jwks_uri": "http://id.example.org/keys"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": 5},
        {"authorization_endpoint": "https://[half"},
    ],
    ids=str,
)
async def test_a_discovery_document_that_leads_elsewhere(says: dict[str, Any]) -> None:
    async with sign_on_rig() as there:
        there.provider.says.update(says)
        client = there.here.client()
        assert await there.why(client, await client.get(START)) == "provider_away"


async def test_a_provider_that_is_away_keeps_no_password_from_signing_in() -> None:
    async with sign_on_rig() as there:
        await there.here.browser("ben")
        there.provider.broken["discovery"] = Response(status_code=503)
        client = there.here.client()
        assert await there.why(client, await client.get(START)) == "provider_away"
        body = {"name": "ben", "password": PASSWORD}
        assert (await client.post("/v1/auth/login", json=body)).status_code == 200
        # It is not asked by everybody in turn, and is there again when it is back.
        await client.get(START)
        assert there.provider.asked["discovery"] == 1
        there.provider.broken.clear()
        there.clock.ahead_s = 3
        _, back = await there.sign_in()
        assert back.headers["location"] == "/"


async def test_an_account_that_is_disabled() -> None:
    async with sign_on_rig() as there:
        client, _ = await there.sign_in()
        user = (await client.get("/v1/me")).json()["id"]
        await there.here.backend.accounts.change(user, {"disabled": True})
        assert await there.refused() == "disabled"


@pytest.mark.parametrize(
    "claims",
    [
        {"email": "ana@other.example"},
        {"email": "ana@sub.example.org"},
        {"email": "ana@example.org.other.example"},
        {"email": "example.org"},
        {"email": "@example.org"},
        {"email": None},
        {"email": ["ana@example.org"]},
        {"email_verified": False},
        {"email_verified": None},
        {"email_verified": "true"},
    ],
    ids=str,
)
async def test_an_address_that_is_not_admitted(claims: dict[str, Any]) -> None:
    async with sign_on_rig() as there:
        assert await there.refused(**claims) == "not_admitted"
        assert there.here.backend.store.users == {}


async def test_nobody_new_where_nobody_is_admitted() -> None:
    async with sign_on_rig(AccountRules()) as there:
        assert await there.refused() == "not_admitted"


async def test_who_was_admitted_once_comes_in_whatever_the_rule_is_now() -> None:
    async with sign_on_rig() as there:
        client, _ = await there.sign_in()
        there.provider.spoil = {"email": "ana@other.example"}
        _, back = await there.sign_in(client)
    assert back.headers["location"] == "/"


async def test_everybody_comes_in_where_everybody_is_admitted_but_not_without_end() -> None:
    async with sign_on_rig(AccountRules(admit=("*",))) as there:
        for n in range(60):
            there.provider.spoil = {"sub": f"{n}", "email": None}
            _, back = await there.sign_in()
            assert back.headers["location"] == "/"
        assert await there.refused(sub="one more") == "too_many"


async def test_tries_without_end() -> None:
    async with sign_on_rig() as there:
        client = there.here.client()
        for _ in range(300):
            await client.get(CALLBACK)
        assert await there.why(client, await client.get(CALLBACK)) == "too_many"
        assert await there.why(client, await client.get(START)) == "too_many"


async def test_sign_ins_that_come_to_something_do_not_count() -> None:
    async with sign_on_rig() as there:
        for _ in range(160):  # there and back: more than 300 tries
            _, back = await there.sign_in()
            assert back.headers["location"] == "/"


async def test_a_provider_that_there_is_none_of() -> None:
    async with sign_on_rig() as there:
        client = there.here.client()
        for path in ("start", "callback"):
            answer = await client.get(f"/v1/auth/oidc/other/{path}")
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
