"""Registering, signing in and out. Right and wrong names cost the same work and answer the same."""

from __future__ import annotations

import unicodedata

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tertulia.core.identities import is_name
from tertulia.core.plans import FREE
from tertulia.core.types import User
from tertulia.gateway.addresses import address_of
from tertulia.gateway.auth import (
    close_session,
    cookie_name,
    open_session,
    secret_hash,
    session_token,
)
from tertulia.gateway.bodies import Body, read_body, schema_of
from tertulia.gateway.front import AtFront
from tertulia.gateway.origin import demand_same_origin, refuse_other_sites
from tertulia.gateway.problems import Problem, invalid

signin = APIRouter(prefix="/v1/auth", tags=["sign in"])


class Registration(Body):
    """A new account."""

    name: str = Field(min_length=2, max_length=64)
    password: str = Field(min_length=10, max_length=200)


class Login(Body):
    """A name and a password to try."""

    name: str = Field(min_length=1, max_length=64)
    password: str = Field(min_length=1, max_length=200)


class Link(Body):
    """The secret of a one-time sign-in link."""

    token: str = Field(min_length=1, max_length=200)


@signin.post(
    "/register", summary="Make an account and sign in", openapi_extra=schema_of(Registration)
)
async def register(request: Request, front: AtFront) -> Response:
    """Makes a local account on the free plan, where registration is open."""
    refuse_other_sites(request)
    desk = front.desk
    if not desk.rules.registration_open:
        raise Problem("forbidden", "Registration is closed here; ask an administrator.")
    body = await read_body(request, Registration)
    name = plain_name(body.name)
    await front.registrations.demand(address_of(request))
    user = User(
        id=desk.new_id("u"),
        name=name,
        role="user",
        plan=FREE,
        password_hash=await front.passwords.hash(body.password),
        created_at=desk.clock.now(),
    )
    added = await desk.accounts.add(user)
    if added is None:
        raise Problem("name_taken", "Somebody has this name already.", field="name")
    return await _signed_in(request, front, added)


@signin.post("/login", summary="Sign in with name and password", openapi_extra=schema_of(Login))
async def login(request: Request, front: AtFront) -> Response:
    """Opens a session. An unknown name, a wrong password and a closed account look the same.

    A try counts before it is known to be wrong, or many at once would pass; who was right takes
    back the one try of the address: signing in to an account of one's own forgives no guesses.
    """
    refuse_other_sites(request)
    body = await read_body(request, Login)
    name, address = unicodedata.normalize("NFKC", body.name), address_of(request)
    tried = await front.logins_by_address.demand(address)
    await front.logins_by_name.demand(guesser(request, name))
    user = await front.desk.accounts.by_name(name)
    right = await front.passwords.matches(
        user.password_hash if user is not None else None, body.password
    )
    if user is None or not right or user.disabled:
        raise Problem("unauthenticated", "The name or the password is wrong.")
    front.logins_by_name.forgive(guesser(request, name))
    front.logins_by_address.take_back(address, tried)
    return await _signed_in(request, front, user)


@signin.post("/link", summary="Sign in with a one-time link", openapi_extra=schema_of(Link))
async def link(request: Request, front: AtFront) -> Response:
    """Redeems the link that was printed at the first start. It works once."""
    refuse_other_sites(request)
    body = await read_body(request, Link)
    address = address_of(request)
    tried = await front.logins_by_address.demand(address)
    user = await front.desk.sessions.redeem(secret_hash(body.token))
    if user is None or user.disabled:
        raise Problem("unauthenticated", "This link was used, has expired or never was one.")
    front.logins_by_address.take_back(address, tried)
    return await _signed_in(request, front, user)


@signin.post("/logout", summary="Sign out", status_code=204)
async def logout(request: Request, front: AtFront) -> Response:
    """Ends the session and what the browser kept of it; its streams end within seconds."""
    desk = front.desk
    token = session_token(request, desk.rules)
    if token is not None:
        demand_same_origin(request)
        await close_session(desk, request)
    response = Response(status_code=204)
    response.headers["Clear-Site-Data"] = '"cache", "cookies", "storage"'
    response.delete_cookie(
        cookie_name(desk.rules),
        path="/",
        secure=desk.rules.secure_cookies,
        httponly=True,
        samesite="lax",
    )
    return response


def plain_name(name: str) -> str:
    """The name in its one written form; Problem when it holds anything but letters and marks."""
    plain = unicodedata.normalize("NFKC", name)
    if not is_name(plain):
        raise invalid("name", "A name is 2 to 64 letters, digits, dots, dashes, _ or @.")
    return plain


def guesser(request: Request, name: str) -> str:
    """Who guesses at what: counted together, so that a stranger can't lock a person out."""
    return f"{name.casefold()} from {address_of(request)}"


def account_json(user: User) -> dict[str, str]:
    """What a person sees of an account."""
    return {"id": user.id, "name": user.name, "role": user.role, "plan": user.plan}


async def _signed_in(request: Request, front: AtFront, user: User) -> Response:
    """An old session of this browser ends: the new token is the only one that counts."""
    await close_session(front.desk, request)
    response = JSONResponse(account_json(user))
    await open_session(front.desk, user, response)
    return response
