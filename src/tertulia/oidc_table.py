"""The tables of providers by which people sign in, in the configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from tertulia.core.identities import EVERYBODY
from tertulia.listening import is_loopback
from tertulia.plan_tables import Table

# The name is a part of an address and of a cookie's name.
NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}\Z")
_DOMAIN: Final = re.compile(r"[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})+\Z")
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,100}\Z")  # RFC 6749, section 3.3

Text = Annotated[str, Field(min_length=1, max_length=200)]


class OidcTable(Table):
    """A provider of OpenID Connect by which people sign in, such as Keycloak or Google."""

    issuer: str = Field(
        max_length=500,
        description="The provider's own name for itself, letter by letter: an https address.",
    )
    client_id: Text = Field(description="What the provider knows this service by.")
    client_secret: SecretStr = Field(
        description="What this service proves itself with, of 16 characters at least; the same for"
        " all gateways. Best given by the environment: `TERTULIA_OIDC__NAME__CLIENT_SECRET`.",
    )
    title: str = Field(
        min_length=1, max_length=40, description="What the button says behind “Sign in with”."
    )
    scopes: tuple[str, ...] = Field(
        ("openid", "email", "profile"), description="What is asked for; `openid` is among it."
    )
    admit: tuple[str, ...] = Field(
        (),
        description="Who gets an account at the first sign-in: those with a verified address in one"
        ' of these e-mail domains, or everybody the provider knows with `["*"]`. Nobody if there is'
        " none; accounts that are there sign in all the same.",
    )
    role_claim: Text | None = Field(
        None,
        description="The claim that sets the role at each sign-in, by its name or a path with dots."
        " Absent from a token it changes nothing.",
    )
    roles: dict[str, Literal["admin", "user"]] = Field(
        {}, description="What the claim's values mean, the first first; `user` for any other."
    )
    plan_claim: Text | None = Field(None, description="The same for the plan.")
    plans: dict[str, str] = Field(
        {}, description="What the claim's values mean, the first first; `free` for any other."
    )

    @field_validator("issuer")
    @classmethod
    def _is_an_address(cls, issuer: str) -> str:
        parts = web_address(issuer)
        if parts.query or parts.fragment:
            raise ValueError("must be an address without a query")
        if parts.scheme != "https" and not is_loopback(issuer):
            raise ValueError("must begin with https://, unless the provider is on this machine")
        return issuer

    @field_validator("client_secret")
    @classmethod
    def _is_long(cls, secret: SecretStr) -> SecretStr:
        # The cookie of a sign-in is sealed with it: a short one could be found by trying.
        if len(secret.get_secret_value()) < 16:
            raise ValueError("must have 16 characters at least")
        return secret

    @field_validator("scopes")
    @classmethod
    def _ask_for_an_identity(cls, scopes: tuple[str, ...]) -> tuple[str, ...]:
        if "openid" not in scopes or not all(_SCOPE.match(scope) for scope in scopes):
            raise ValueError("must be words without spaces, and openid among them")
        return scopes

    @field_validator("admit")
    @classmethod
    def _are_domains(cls, admit: tuple[str, ...]) -> tuple[str, ...]:
        domains = tuple(domain.casefold() for domain in admit)
        if not all(domain == EVERYBODY or _DOMAIN.match(domain) for domain in domains):
            raise ValueError('must be e-mail domains such as "example.org", or "*" for everybody')
        return domains

    @model_validator(mode="after")
    def _maps_have_their_claims(self) -> OidcTable:
        if (self.role_claim is None) != (not self.roles):
            raise ValueError("role_claim and roles belong together: give both, or none")
        if (self.plan_claim is None) != (not self.plans):
            raise ValueError("plan_claim and plans belong together: give both, or none")
        return self


def web_address(text: str) -> SplitResult:
    """The parts of an http or https address with a host and nobody's name in it; ValueError."""
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise ValueError("can't be read as an address") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError("must be an address such as https://chat.example.org")
    return parts


def misfits(
    providers: Mapping[str, OidcTable],
    plans: Mapping[str, object],
    public_url: str | None,
    *,
    secure_cookies: bool,
) -> Iterator[str]:
    """What is wrong with the providers beside the rest of the settings, in sentences."""
    for name, provider in providers.items():
        if not NAME.match(name):
            yield f"oidc.{name}: a name is small letters, digits, - and _, and begins with a letter"
        for plan in sorted(set(provider.plans.values()) - set(plans)):
            yield f"oidc.{name}.plans: there is no plan {plan}"
    if not providers:
        return
    issuers = [provider.issuer for provider in providers.values()]
    if len(set(issuers)) < len(issuers):
        yield "oidc: two providers have the same issuer"
    if public_url is None:
        yield "server.public_url: must say where people open the page, as providers send them there"
    elif public_url.startswith("https:") and not secure_cookies:
        yield "server.secure_cookies: must be true where server.public_url begins with https"
