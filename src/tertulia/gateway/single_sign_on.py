"""Signing in by a provider of OpenID Connect: there and back again, in one browser.

What begins a sign-in is sealed in a cookie of the browser that began it, so any gateway can end it,
and another browser can't. Nothing that a provider or a browser says is shown or logged.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal

import structlog
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tertulia.core.identities import (
    EVERYBODY,
    FLOW_S,
    Flow,
    Identity,
    NotVouched,
    Vouched,
    changes_by_claims,
    inside,
    is_admitted,
    names_for,
)
from tertulia.core.plans import FREE
from tertulia.core.types import User
from tertulia.gateway.addresses import address_of
from tertulia.gateway.auth import close_session, open_session
from tertulia.gateway.desk import Desk, GatewayRules, SignOn
from tertulia.gateway.front import AtFront, Front
from tertulia.gateway.problems import Problem, not_found
from tertulia.ports import StoreUnavailable
from tertulia.ports_of_identities import ProviderAway

single_sign_on = APIRouter(prefix="/v1/auth", tags=["sign in"])

_log = structlog.get_logger(__name__)

# What the page has words for when a sign-in comes to nothing: it comes to them behind a `#`.
Refusal = Literal[
    "expired",
    "provider_refused",
    "provider_away",
    "provider_untrusted",
    "not_admitted",
    "disabled",
    "too_many",
    "store_away",
]
_NOT_VOUCHED: Final[Mapping[str, Refusal]] = {
    "refused": "provider_refused",
    "untrusted": "provider_untrusted",
}
# Codes are short; some providers put a whole token into one.
_CODE_CHARS: Final = 8192
# What makes the name of a tenth namesake the only one.
_TAIL_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class _Refused:
    why: Refusal


@dataclass(frozen=True, slots=True)
class _Returned:
    """What a browser brings back from a provider."""

    state: str
    code: str
    issuer: str | None


@single_sign_on.get("/ways", summary="How one may sign in here")
async def ways(front: AtFront) -> JSONResponse:
    """For the page: whether people may make accounts, and by which providers they sign in."""
    desk = front.desk
    providers = [_way_json(desk, sign_on) for sign_on in desk.sign_ons.values()]
    return JSONResponse({"registration": desk.rules.registration_open, "providers": providers})


@single_sign_on.get("/oidc/{provider}/start", summary="Go to a provider to sign in")
async def start(
    provider: str,
    request: Request,
    front: AtFront,
    return_to: Annotated[str, Query(alias="return", max_length=400)] = "/",
) -> Response:
    """Sends the browser to the provider: 303. `return` is a path of the page, for afterwards."""
    sign_on = _sign_on(front, provider)
    try:
        tried = await front.provider_sign_ins.demand(address_of(request))
        flow = Flow(
            provider=sign_on.name,
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
            return_to=inside(return_to),
            began_at=front.desk.clock.now(),
            tried=tried,
        )
        response = _to(await sign_on.provider.address(flow))
    except Problem:
        return _back(_Refused("too_many"))
    except ProviderAway as error:
        return _back(_away(sign_on, error))
    rules = front.desk.rules
    response.set_cookie(
        _cookie_name(rules, sign_on),
        sign_on.provider.seal(flow),
        max_age=int(FLOW_S),
        path="/",
        secure=rules.secure_cookies,
        httponly=True,
        samesite="lax",  # the way back is a navigation from another site
    )
    return response


@single_sign_on.get("/oidc/{provider}/callback", summary="Come back from a provider")
async def callback(
    provider: str,
    request: Request,
    front: AtFront,
    state: Annotated[str, Query(max_length=200)] = "",
    code: Annotated[str, Query(max_length=_CODE_CHARS)] = "",
    iss: Annotated[str | None, Query(max_length=500)] = None,
) -> Response:
    """Signs the browser in and sends it to where it wanted to go: 303. Where that comes to nothing
    the page is told why, by one word."""
    sign_on = _sign_on(front, provider)
    try:
        outcome = await _come_back(request, front, sign_on, _Returned(state, code, iss))
        if isinstance(outcome, _Refused):
            response = _back(outcome)
        else:
            flow, user = outcome
            response = _to(flow.return_to)
            await close_session(front.desk, request)
            await open_session(front.desk, user, response)
    except StoreUnavailable:
        response = _back(_Refused("store_away"))
    rules = front.desk.rules
    response.delete_cookie(
        _cookie_name(rules, sign_on),
        path="/",
        secure=rules.secure_cookies,
        httponly=True,
        samesite="lax",
    )
    return response


def callback_path(provider: str) -> str:
    """Where a provider sends people back to, below the public address."""
    return f"/v1/auth/oidc/{provider}/callback"


async def signs_in_by(desk: Desk, user: User) -> dict[str, Any]:
    """By what an account signs in, for its owner."""
    by_issuer = {sign_on.issuer: sign_on for sign_on in desk.sign_ons.values()}
    identities = await desk.identities.of_user(user.id)
    return {
        "password": user.password_hash is not None,
        "providers": [
            _way_json(desk, by_issuer[one.issuer])
            if one.issuer in by_issuer
            # Taken out of the configuration since: it leads nowhere now.
            else {"name": None, "title": one.issuer, "start": None}
            for one in identities
        ],
    }


async def _come_back(
    request: Request, front: Front, sign_on: SignOn, returned: _Returned
) -> tuple[Flow, User] | _Refused:
    address = address_of(request)
    try:
        tried = await front.provider_sign_ins.demand(address)
        flow = await _flow_of(request, front, sign_on, returned)
        if flow is None:
            return _Refused("expired")
        if not returned.code:
            return _Refused("provider_refused")
        vouched = await sign_on.provider.vouch(
            flow, code=returned.code, said_issuer=returned.issuer
        )
        if isinstance(vouched, NotVouched):
            _log.warning("sign_in_not_vouched", provider=sign_on.name, why=vouched.why)
            return _Refused(_NOT_VOUCHED[vouched.kind])
        user = await _user_of(front, sign_on, vouched, address)
    except Problem:
        return _Refused("too_many")
    except ProviderAway as error:
        return _away(sign_on, error)
    if isinstance(user, User):
        # As with passwords, only what comes to nothing counts: an office signs in as it likes.
        front.provider_sign_ins.take_back(address, tried)
        front.provider_sign_ins.take_back(address, flow.tried)
        return flow, user
    return user


async def _flow_of(
    request: Request, front: Front, sign_on: SignOn, returned: _Returned
) -> Flow | None:
    """The flow that this browser began and that comes back now for the first time."""
    sealed = request.cookies.get(_cookie_name(front.desk.rules, sign_on))
    flow = sign_on.provider.unseal(sealed) if sealed else None
    if flow is None or flow.provider != sign_on.name:
        return None
    if not hmac.compare_digest(flow.state.encode(), returned.state.encode()):
        return None
    if not 0 <= front.desk.clock.now() - flow.began_at <= FLOW_S:
        return None
    try:
        await front.flows.demand(flow.state)
    except Problem:
        return None  # it came back before
    return flow


async def _user_of(
    front: Front, sign_on: SignOn, vouched: Vouched, address: str
) -> User | _Refused:
    desk = front.desk
    known = await desk.identities.find(sign_on.issuer, vouched.subject)
    if known is None:
        if not is_admitted(vouched.claims, sign_on.rules):
            return _Refused("not_admitted")
        if EVERYBODY in sign_on.rules.admit:
            # Anybody can make accounts at such a provider, and each here brings a budget (S-37).
            await front.registrations.demand(address)
        known = await _new_user(desk, sign_on, vouched)
    if known.disabled:
        return _Refused("disabled")
    changes = changes_by_claims(known, vouched.claims, sign_on.rules)
    if changes:
        _log.info("account_set_by_claims", user=known.id, provider=sign_on.name, **changes)
        return await desk.accounts.change(known.id, changes) or _Refused("expired")
    return known


async def _new_user(desk: Desk, sign_on: SignOn, vouched: Vouched) -> User:
    now = desk.clock.now()
    new = User(desk.new_id("u"), "", "user", FREE, None, now)
    identity = Identity(sign_on.issuer, vouched.subject, new.id, now)
    for name in names_for(vouched.claims, secrets.token_hex(_TAIL_BYTES)):
        added = await desk.identities.add(replace(new, name=name), identity)
        if added is not None:
            return added
    raise AssertionError("a name with a tail of its own was taken")


def _sign_on(front: Front, name: str) -> SignOn:
    found = front.desk.sign_ons.get(name)
    if found is None:
        raise not_found()
    return found


def _way_json(desk: Desk, sign_on: SignOn) -> dict[str, Any]:
    # The whole address: a cookie that was set under another name would not come back.
    start = f"{desk.rules.public_url}/v1/auth/oidc/{sign_on.name}/start"
    return {"name": sign_on.name, "title": sign_on.title, "start": start}


def _cookie_name(rules: GatewayRules, sign_on: SignOn) -> str:
    return f"{'__Host-' if rules.secure_cookies else ''}tertulia_oidc_{sign_on.name}"


def _away(sign_on: SignOn, error: ProviderAway) -> _Refused:
    _log.warning("provider_away", provider=sign_on.name, why=str(error))
    return _Refused("provider_away")


def _back(refused: _Refused) -> Response:
    return _to(f"/#refused={refused.why}")


def _to(address: str) -> Response:
    return Response(status_code=303, headers={"Location": address})
