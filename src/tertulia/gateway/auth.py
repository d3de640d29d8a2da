"""Decides who is asking, from an API key or a session cookie and from nothing else.

Secrets are looked up by their hash; what is wrong, expired or disabled is the same 401.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated, Final, Protocol

from fastapi import Depends, Security
from fastapi.security import HTTPBearer
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from tertulia.core.types import ApiKey, User
from tertulia.gateway.caller import Caller
from tertulia.gateway.desk import Desk, GatewayRules
from tertulia.gateway.front import AtFront
from tertulia.gateway.origin import demand_same_origin
from tertulia.gateway.problems import Problem
from tertulia.ports import Clock, NewId

KEY_PREFIX: Final = "tk_"
# Longer than any secret of ours: it need not be hashed to know that it is none.
_SECRET_CHARS = 200


class _ShownBearer(HTTPBearer):
    """Stands in the OpenAPI document alone: `who` reads the header itself."""

    async def __call__(self, request: HTTPConnection) -> None:  # noqa: ARG002  # it overrides one
        return None


_SHOW_BEARER = _ShownBearer(scheme_name="apiKey", description="An API key.")


async def who(
    request: Request, front: AtFront, _shown: Annotated[object, Security(_SHOW_BEARER)]
) -> Caller:
    """The caller; Problem `unauthenticated` when nobody is, `csrf` when a foreign page asks."""
    given = request.headers.get("authorization")
    if given is not None:
        caller = await _by_key(front.desk, given)
    else:
        caller = await _by_session(front.desk, session_token(request, front.desk.rules))
    if caller is None:
        raise nobody()
    if caller.session is not None:
        demand_same_origin(request)
    return caller


def nobody() -> Problem:
    """For a credential that is none, or is none any more."""
    return Problem("unauthenticated", "Sign in, or send a valid API key.")


Asking = Annotated[Caller, Depends(who)]


async def admin_only(caller: Asking) -> Caller:
    """The caller, who must be an administrator."""
    if caller.user.role != "admin":
        raise Problem("forbidden", "This is for administrators.")
    return caller


AdminAsking = Annotated[Caller, Depends(admin_only)]


async def open_session(desk: Desk, user: User, response: Response) -> None:
    """Signs a browser in with a token made now: one planted before sign-in is worth nothing."""
    token = secrets.token_urlsafe(32)
    await desk.sessions.open(user.id, secret_hash(token), lasts_s=desk.rules.session_s)
    response.set_cookie(
        cookie_name(desk.rules),
        token,
        max_age=int(desk.rules.session_s),
        path="/",
        secure=desk.rules.secure_cookies,
        httponly=True,
        samesite="lax",
    )


async def close_session(desk: Desk, request: Request) -> None:
    """Ends the session that the request carries, if any."""
    token = session_token(request, desk.rules)
    if token is not None:
        await desk.sessions.close(token_hash=secret_hash(token))


def cookie_name(rules: GatewayRules) -> str:
    """`__Host-` ties the cookie to this host and to TLS; without TLS browsers refuse that name."""
    return "__Host-tertulia_session" if rules.secure_cookies else "tertulia_session"


def session_token(request: Request, rules: GatewayRules) -> str | None:
    """The session cookie's value, unless it can't be one of ours."""
    token = request.cookies.get(cookie_name(rules))
    return token if token and len(token) <= _SECRET_CHARS else None


class Minting(Protocol):
    """What a new key needs: a name and a date."""

    @property
    def new_id(self) -> NewId: ...
    @property
    def clock(self) -> Clock: ...


def new_key(desk: Minting, user: User, name: str) -> tuple[ApiKey, str]:
    """A key, not stored yet, and its secret, which is never stored."""
    secret = KEY_PREFIX + secrets.token_urlsafe(32)
    key = ApiKey(
        id=desk.new_id("key"),
        owner=user.id,
        name=name,
        prefix=secret[:8],
        secret_hash=secret_hash(secret),
        created_at=desk.clock.now(),
    )
    return key, secret


def secret_hash(secret: str) -> str:
    """What is stored of a secret. It has 256 random bits, so a plain hash can't be guessed back."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


async def _by_key(desk: Desk, given: str) -> Caller | None:
    scheme, _, secret = given.partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret.startswith(KEY_PREFIX):
        return None
    if len(secret) > _SECRET_CHARS:
        return None
    found = await desk.api_keys.by_secret(secret_hash(secret))
    if found is None:
        return None
    user, key = found
    return None if user.disabled else Caller(user, key.secret_hash)


async def _by_session(desk: Desk, token: str | None) -> Caller | None:
    if token is None:
        return None
    session = await desk.sessions.find(secret_hash(token))
    if session is None or session.user.disabled:
        return None
    return Caller(session.user, session.token_hash, session)
