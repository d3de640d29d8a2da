"""Calls to a provider, each with an end: a bound on time and on the length of the answer.

No redirect is followed, so that a provider's answer leads this machine nowhere else.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any, Final

import httpx2
from authlib.integrations.httpx_client import AsyncOAuth2Client

from tertulia.listening import is_loopback
from tertulia.ports_of_identities import ProviderAway

# A person waits for it, and a provider that is well answers within a second.
_STEP_S: Final = 5.0
ALL_S: Final = 10.0
# The longest answers are lists of keys with their certificates; a tenth of this is much.
ANSWER_BYTES: Final = 262_144
# Whoever signs in while so many wait for this provider is told to come back.
_AT_ONCE: Final = 64


class _TooLong(Exception):
    """The answer is longer than any that is meant."""


class _Bounded(httpx2.AsyncByteStream):
    """A body that ends with an error where it goes on for too long."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = ANSWER_BYTES
        async for part in self._body:
            left -= len(part)
            if left < 0:
                raise _TooLong
            yield part

    async def aclose(self) -> None:
        await self._body.aclose()


class Asking:
    """Calls to one provider. No connection is kept between two sign-ins."""

    def __init__(self, issuer: str, *, all_s: float = ALL_S, **registered: Any) -> None:
        self._registered = registered
        self._all_s = all_s
        # Providers are often behind the proxy that the environment names; loopback never is.
        self._trust_env = not is_loopback(issuer)
        self._inside = 0

    @asynccontextmanager
    async def client(self, **more: Any) -> AsyncGenerator[AsyncOAuth2Client, None]:
        """Authlib's client for a few calls that together have an end; ProviderAway says why there
        is no answer."""
        if self._inside >= _AT_ONCE:
            raise ProviderAway("too many people are waiting for it")
        self._inside += 1
        try:
            async with (
                asyncio.timeout(self._all_s),
                AsyncOAuth2Client(
                    **self._registered,
                    **more,
                    verify=self._tls,
                    timeout=httpx2.Timeout(_STEP_S),
                    follow_redirects=False,
                    trust_env=self._trust_env,
                    event_hooks={"response": [_bound]},
                ) as client,
            ):
                # Packed, a short answer could be a very long one.
                client.headers["Accept-Encoding"] = "identity"
                yield client
        except TimeoutError:
            raise ProviderAway("it did not answer in time") from None
        except _TooLong:
            raise ProviderAway("its answer is too long") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise ProviderAway(type(error).__name__) from None
        finally:
            self._inside -= 1

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        # Once for all calls: reading the system's certificates takes 60 ms.
        return httpx2.create_ssl_context()


async def fetched(client: AsyncOAuth2Client, url: str) -> dict[str, Any]:
    """The JSON object at `url`; ProviderAway if there is none."""
    wanted = {"Accept": "application/json"}
    answer = await client.request("GET", url, withhold_token=True, headers=wanted)
    if answer.status_code != 200:
        raise ProviderAway(f"it answered {answer.status_code}")
    try:
        value = answer.json()
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ProviderAway("its answer is no JSON object")
    return value


async def _bound(response: httpx2.Response) -> None:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ProviderAway("its answer is packed")
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _Bounded(response.stream)
