"""A gateway with a provider beside it, and a browser that goes from one to the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx2

from tertulia.backends.clock import SystemClock
from tertulia.backends.openid import OpenIdProvider, Registration
from tertulia.backends.openid.asking import ALL_S
from tertulia.core.identities import AccountRules
from tertulia.gateway.desk import Desk, SignOn
from tertulia.gateway.single_sign_on import callback_path
from tests.lanes.gateway_rig import RULES, Rig, rig, served
from tests.openid_provider import CLIENT_ID, CLIENT_SECRET, FakeProvider

PUBLIC = "http://chat.example.org"
START = "/v1/auth/oidc/work/start"
CALLBACK = callback_path("work")
ADMITTED = AccountRules(admit=("example.org",))


class MovedClock(SystemClock):
    """The system's clock, some seconds on."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_s = 0.0

    def now(self) -> float:
        return super().now() + self.ahead_s


@dataclass
class SignOnRig:
    """A gateway, its provider, and the way between them."""

    here: Rig
    provider: FakeProvider
    clock: MovedClock

    async def leave(
        self, client: httpx2.AsyncClient, return_to: str | None = None
    ) -> httpx2.Response:
        """As far as the provider: what it answers to the browser."""
        query = {} if return_to is None else {"return": return_to}
        there = await client.get(START, params=query)
        assert there.status_code == 303, there.text
        assert there.headers["location"].startswith(self.provider.url), there.headers["location"]
        async with httpx2.AsyncClient(trust_env=False) as browser:
            return await browser.get(there.headers["location"])

    async def come_back(
        self, client: httpx2.AsyncClient, answer: httpx2.Response, **changes: str | None
    ) -> httpx2.Response:
        """To the gateway, with what the provider gave."""
        address = httpx2.URL(answer.headers["location"])
        assert str(address).startswith(PUBLIC + CALLBACK)
        query = {name: value for name, value in (dict(address.params) | changes).items() if value}
        return await client.get(CALLBACK, params=query)

    async def sign_in(
        self, client: httpx2.AsyncClient | None = None, return_to: str | None = None
    ) -> tuple[httpx2.AsyncClient, httpx2.Response]:
        """The whole way; the browser and the last answer."""
        client = client or self.here.client(Origin=self.here.url)
        return client, await self.come_back(client, await self.leave(client, return_to))

    async def refused(self, **spoil: Any) -> str:
        """Why a sign-in came to nothing, with the provider's claims changed so; and that it did."""
        self.provider.spoil = spoil
        client, back = await self.sign_in()
        return await self.why(client, back)

    async def why(self, client: httpx2.AsyncClient, back: httpx2.Response) -> str:
        """The word that a browser comes back to the page with, signed in nowhere."""
        assert back.status_code == 303, back.text
        assert (await client.get("/v1/me")).status_code == 401
        assert not any("session" in name for name in client.cookies)
        page, _, why = back.headers["location"].partition("#refused=")
        assert page == "/"
        return why


@asynccontextmanager
async def sign_on_rig(rules: AccountRules = ADMITTED, **more: Any) -> AsyncIterator[SignOnRig]:
    """A gateway with the provider `work`, until the block ends."""
    provider, clock = FakeProvider(redirect_uri=PUBLIC + CALLBACK), MovedClock()
    async with served(provider.app) as url:
        provider.url = url
        ours = Registration(
            url, CLIENT_ID, CLIENT_SECRET, provider.redirect_uri, ("openid", "email", "profile")
        )
        sign_on = SignOn(
            "work",
            "Work",
            url,
            OpenIdProvider(ours, clock, answer_s=more.pop("answer_s", ALL_S)),
            rules,
        )

        def with_provider(desk: Desk) -> Desk:
            public = replace(desk.rules, public_url=PUBLIC)
            return replace(desk, sign_ons={"work": sign_on}, rules=public, clock=clock)

        async with rig(rules=more.pop("gateway_rules", RULES), change_desk=with_provider) as here:
            yield SignOnRig(here, provider, clock)
