"""Whether a browser's request comes from our own page. Programs send no such headers."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.requests import Request

from tertulia.gateway.problems import Problem

_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_DEFAULT_PORTS = {"http": "80", "https": "443"}


def demand_same_origin(request: Request) -> None:
    """For a request that a cookie speaks for: an unsafe method must prove that our page sent it."""
    if request.method not in _SAFE_METHODS and _verdict(request) is not True:
        raise _refused()


def refuse_other_sites(request: Request) -> None:
    """For a request without a credential (a sign-in): refuses it when a browser says it is foreign.

    A form on another site could otherwise sign its visitor in to the attacker's account.
    """
    if _verdict(request) is False:
        raise _refused()


def _verdict(request: Request) -> bool | None:
    """True for our own page, False for another, None when no browser spoke.

    The browser's own word about the site comes first: a proxy may have changed `Host`.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    if origin is None:
        return None
    return _host_of(origin) == request.headers.get("host", "").lower()


def _host_of(origin: str) -> str | None:
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return None
    host = (parts.hostname or "").lower()
    if ":" in host:
        host = f"[{host}]"
    if port is None or str(port) == _DEFAULT_PORTS.get(parts.scheme):
        return host
    return f"{host}:{port}"


def _refused() -> Problem:
    return Problem("csrf", "This call must come from Tertulia's own page, or carry an API key.")
