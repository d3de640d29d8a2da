"""A small provider of OpenID Connect for tests: a fake that asks nobody for a password.

It signs with RSA keys of its own, keeps the rules of a real one (registered address, PKCE, a
code works once), and breaks them one by one as a test tells it to.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT_ID = "tertulia"
CLIENT_SECRET = "a secret of 24 characters"
ANA: Mapping[str, Any] = {
    "sub": "248289761001",
    "preferred_username": "ana",
    "email": "ana@example.org",
    "email_verified": True,
}


def new_key(kid: str) -> RSAKey:
    """A key for signatures."""
    return RSAKey.generate_key(2048, {"kid": kid, "use": "sig"})


@dataclass
class FakeProvider:
    """What it says and how it breaks. `asked` counts the calls of each address."""

    claims: dict[str, Any] = field(default_factory=lambda: dict(ANA))
    keys: list[RSAKey] = field(default_factory=lambda: [new_key("first")])
    url: str = ""
    redirect_uri: str = ""
    asked: dict[str, int] = field(default_factory=dict)
    # Faults: what the browser brings back instead, claims that are put over the right ones (None
    # takes one away), a signature of another kind, and answers that are none.
    error: str | None = None
    spoil: dict[str, Any] = field(default_factory=dict)
    sign: Callable[[FakeProvider, dict[str, Any]], str] | None = None
    says: dict[str, Any] = field(default_factory=dict)
    broken: dict[str, Response] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    _codes: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def app(self) -> Starlette:
        """Its addresses."""
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._guard("discovery", self._about)),
                Route("/keys", self._guard("keys", self._keys)),
                Route("/authorize", self._guard("authorize", self._authorize)),
                Route("/token", self._guard("token", self._token), methods=["POST"]),
            ]
        )

    def _guard(self, name: str, answer: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def guarded(request: Request) -> Response:
            self.asked[name] = self.asked.get(name, 0) + 1
            if name in self.silent:
                await asyncio.sleep(600)
            if name in self.broken:
                return self.broken[name]
            response: Response = await answer(request)
            return response

        return guarded

    async def _about(self, _request: Request) -> Response:
        said = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
        }
        return JSONResponse({**said, **self.says})

    async def _keys(self, _request: Request) -> Response:
        return JSONResponse({"keys": [key.as_dict(private=False) for key in self.keys]})

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert asked["client_id"] == CLIENT_ID
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        assert "openid" in asked["scope"].split()
        if asked["redirect_uri"] != self.redirect_uri:
            return PlainTextResponse("This address is not registered.", 400)
        back = {"state": asked["state"]}
        if self.error is not None:
            back["error"] = self.error
        else:
            back["code"] = secrets.token_urlsafe(16)
            self._codes[back["code"]] = asked
        return RedirectResponse(f"{self.redirect_uri}?{urlencode(back)}", 302)

    async def _token(self, request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode()))
        asked = self._codes.pop(str(form.get("code")), None)
        proof = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".replace(" ", "+").encode())
        plain = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode())
        if request.headers.get("authorization") not in (
            f"Basic {proof.decode()}",
            f"Basic {plain.decode()}",
        ):
            return JSONResponse({"error": "invalid_client"}, 401)
        verifier = str(form.get("code_verifier")).encode()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier).digest()).rstrip(b"=")
        if (
            asked is None
            or form.get("grant_type") != "authorization_code"
            or form.get("redirect_uri") != asked["redirect_uri"]
            or challenge.decode() != asked["code_challenge"]
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        token = (self.sign or signed)(self, self._said(asked))
        return JSONResponse({"access_token": "opaque", "token_type": "Bearer", "id_token": token})

    def _said(self, asked: Mapping[str, str]) -> dict[str, Any]:
        now = int(time.time())
        said = {
            "iss": self.url,
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 300,
            "nonce": asked["nonce"],
            **self.claims,
            **self.spoil,
        }
        return {name: value for name, value in said.items() if value is not None}


def signed(provider: FakeProvider, claims: dict[str, Any]) -> str:
    """As it should be: by its newest key."""
    key = provider.keys[-1]
    return jwt.encode({"alg": "RS256", "kid": key.kid}, claims, key)


def by_a_stranger(provider: FakeProvider, claims: dict[str, Any]) -> str:
    """By a key that only has the right name."""
    kid = provider.keys[-1].kid or ""
    return jwt.encode({"alg": "RS256", "kid": kid}, claims, new_key(kid))


def by_nobody(provider: FakeProvider, claims: dict[str, Any]) -> str:
    """Without a signature, and saying so."""
    head = {"alg": "none", "typ": "JWT", "kid": provider.keys[-1].kid}
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()) for part in (head, claims)]
    return ".".join([*(part.decode().rstrip("=") for part in parts), ""])


def by_the_public_key(provider: FakeProvider, claims: dict[str, Any]) -> str:
    """As if the public key were a secret that both sides share."""
    key = provider.keys[-1]
    secret = OctKey.import_key(base64.b64encode(key.as_pem(private=False)).decode())
    return jwt.encode({"alg": "HS256", "kid": key.kid}, claims, secret)
