"""HTTP to processes of this machine, for drills and tests."""

from __future__ import annotations

import ssl
from typing import Any, Final

import httpx2

# Nothing here is encrypted, and loading the system's certificates takes 50 ms a client.
_NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def loopback(timeout: float | httpx2.Timeout, **more: Any) -> httpx2.AsyncClient:
    """A client that no proxy and no certificate stands behind. `more` goes to httpx2."""
    return httpx2.AsyncClient(timeout=timeout, verify=_NO_TLS, trust_env=False, **more)
