"""Where a request comes from, as far as limits for each address are concerned."""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Final

from starlette.requests import Request

# What one subscriber is given at least: within it a machine takes as many addresses as it likes.
_IPV6_PREFIX: Final = 64


def address_of(request: Request) -> str:
    """Who is counted as one. Behind a proxy that is trusted (`server.trusted_proxies`) the server
    has put in the address that the proxy names."""
    return network_of(request.client.host) if request.client else ""


def network_of(host: str) -> str:
    """An IPv4 address as it is, and an IPv6 address as the network that its holder can use all of.
    What is no address (a socket's path, what a proxy made up) is counted under its own name."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Network((int(address), _IPV6_PREFIX), strict=False))
