"""What a provider says of itself: its addresses and its keys, asked for when they are needed and
kept for a while.

The document must name the issuer that was configured. Its addresses are believed as far as they are
encrypted: whoever speaks for the issuer may name them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from tertulia.backends.openid.asking import Asking, fetched
from tertulia.listening import is_loopback
from tertulia.ports import Clock
from tertulia.ports_of_identities import ProviderAway

# Providers change their addresses in years and their keys in weeks, and announce keys beforehand.
_KEPT_S: Final = 3600.0
# A token that names an unknown key has the keys fetched anew, but not each such token.
_AGAIN_S: Final = 5.0
# A provider that was just found away is not waited for by everybody in turn.
_AWAY_S: Final = 2.0
_KEYS: Final = 100


@dataclass(frozen=True, slots=True)
class Endpoints:
    """A provider's addresses, and how it wants to be spoken to."""

    authorization: str
    token: str
    keys: str
    token_auth: str
    # It names itself when the browser comes back (RFC 9207).
    names_itself: bool


class Discovery:
    """The endpoints and keys of one issuer. Both may be an hour old."""

    def __init__(self, issuer: str, asking: Asking, clock: Clock) -> None:
        self._issuer = issuer
        self._asking = asking
        self._clock = clock
        self._line = asyncio.Lock()
        self._endpoints: tuple[float, Endpoints] | None = None
        self._keys: tuple[float, KeySet] | None = None
        self._renewed_at = -math.inf
        self._away_at, self._away = -math.inf, ""

    async def endpoints(self) -> Endpoints:
        """Where the provider is; ProviderAway if it does not say."""
        async with self._line:
            return await self._known_endpoints()

    async def keys(self, *, beyond: KeySet | None = None) -> KeySet:
        """The provider's keys; `beyond` is a set that lacked the one that was looked for. The same
        set is given again where it was fetched anew only just now."""
        async with self._line:
            known, now = self._keys, self._clock.now()
            if known is not None and now - known[0] < _KEPT_S:
                if known[1] is not beyond or now - self._renewed_at < _AGAIN_S:
                    return known[1]
                self._renewed_at = now
            where = await self._known_endpoints()
            keys = _key_set(await self._ask(where.keys))
            self._keys = (self._clock.now(), keys)
            return keys

    async def _known_endpoints(self) -> Endpoints:
        known = self._endpoints
        if known is not None and self._clock.now() - known[0] < _KEPT_S:
            return known[1]
        url = self._issuer.rstrip("/") + "/.well-known/openid-configuration"
        endpoints = _endpoints(await self._ask(url), self._issuer)
        self._endpoints = (self._clock.now(), endpoints)
        return endpoints

    async def _ask(self, url: str) -> dict[str, Any]:
        if self._clock.now() - self._away_at < _AWAY_S:
            raise ProviderAway(self._away)
        try:
            async with self._asking.client() as client:
                return await fetched(client, url)
        except ProviderAway as error:
            self._away_at, self._away = self._clock.now(), str(error)
            raise


def _endpoints(said: Mapping[str, Any], issuer: str) -> Endpoints:
    if said.get("issuer") != issuer:
        raise ProviderAway("its discovery document names another issuer")
    # A provider that says nothing takes the way that every provider has to offer.
    ways = said.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    is_basic = isinstance(ways, list) and "client_secret_basic" in ways
    return Endpoints(
        authorization=_address(said, "authorization_endpoint", issuer),
        token=_address(said, "token_endpoint", issuer),
        keys=_address(said, "jwks_uri", issuer),
        token_auth="client_secret_basic" if is_basic else "client_secret_post",
        names_itself=said.get("authorization_response_iss_parameter_supported") is True,
    )


def _address(said: Mapping[str, Any], name: str, issuer: str) -> str:
    url = said.get(name)
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        host = parts.hostname
    except ValueError:
        host = None
    if not host:
        raise ProviderAway(f"its {name} is no address")
    # Only a provider on this machine may go without TLS, and only to this machine.
    is_here = is_loopback(issuer) and is_loopback(str(url))
    if parts.scheme != "https" and not (parts.scheme == "http" and is_here):
        raise ProviderAway(f"its {name} is no https address")
    return str(url)


def _key_set(said: Mapping[str, Any]) -> KeySet:
    """The public keys for signatures. A secret one in a public list proves nothing."""
    given = said.get("keys")
    usable: Any = [
        key
        for key in (given if isinstance(given, list) else [])[:_KEYS]
        if isinstance(key, dict) and key.get("kty") != "oct" and key.get("use", "sig") == "sig"
    ]
    try:
        return KeySet.import_key_set({"keys": usable})
    except (JoseError, ValueError, KeyError, TypeError):
        raise ProviderAway("its keys can't be read") from None
