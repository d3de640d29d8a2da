"""Providers of OpenID Connect, as their clients see them. Authlib speaks the protocol and joserfc
checks signatures: neither is written anew here, and nothing else imports them."""

from __future__ import annotations

from tertulia.backends.openid.provider import OpenIdProvider, Registration

__all__ = ["OpenIdProvider", "Registration"]
