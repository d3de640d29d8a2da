"""Decides who is asking, from an API key or a session cookie and from nothing else.

Secrets are looked up by their hash; what is wrong, expired or disabled is the same 401.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Annotated, Final

from fastapi import Depends, Security
from fastapi.security import HTTPBearer
from starlette.requests import Request
from starlette.responses import Response

from tertulia.core.types import ApiKey, User
from tertulia.gateway.caller import Caller
from tertulia.gateway.desk import Desk, GatewayRules
from tertulia.gateway.front import AtFront
from tertulia.gateway.origin import demand_same_origin
from tertulia.gateway.problems import Problem

KEY_PREFIX: Final = "tk_"
# Longer than any secret of ours: it need not be hashed to know that it is none.
_SECRET_CHARS = 200

_SHOW_BEARER = HTTPBearer(auto_error=False, scheme_name="apiKey", description="An API key.")


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
        raise Problem("unauthenticated", "Sign in, or send a valid API key.")
    if caller.session is not None:
        demand_same_origin(request)
    return caller


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


async def still_valid(desk: Desk, caller: Caller) -> bool:
    """Whether the credential still counts: a stream outlives the request that it began with."""
    if caller.session is not None:
        return await desk.sessions.find(caller.credential) is not None
    return await desk.api_keys.by_secret(caller.credential) is not None


def cookie_name(rules: GatewayRules) -> str:
    """`__Host-` ties the cookie to this host and to TLS; without TLS browsers refuse that name."""
    return "__Host-tertulia_session" if rules.secure_cookies else "tertulia_session"


def session_token(request: Request, rules: GatewayRules) -> str | None:
    """The session cookie's value, unless it can't be one of ours."""
    token = request.cookies.get(cookie_name(rules))
    return token if token and len(token) <= _SECRET_CHARS else None


def new_key(desk: Desk, user: User, name: str) -> tuple[ApiKey, str]:
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
