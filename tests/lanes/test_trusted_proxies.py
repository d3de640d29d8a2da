"""Whom the server believes when it is told where a call comes from."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tertulia.gateway.addresses import address_of
from tertulia.listening import listen
from tertulia.wiring.http import server_for

pytestmark = pytest.mark.anyio

FORWARDED = {"X-Forwarded-For": "203.0.113.66, 198.51.100.7"}


async def counted_as(trusted: Sequence[str], headers: dict[str, str]) -> str:
    """The address under which a call from this machine is counted."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse(address_of(Request(scope)))(scope, receive, send)

    listening = listen("127.0.0.1", 0)
    server = server_for(app, trusted_proxies=trusted)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.serve(sockets=[listening.socket]))
        async with httpx2.AsyncClient(trust_env=False) as http:
            answer = await http.get(listening.address, headers=headers)
        server.should_exit = True
    return answer.text


async def test_a_proxy_that_is_trusted_names_its_client_and_no_client_names_itself() -> None:
    """What a client sends stands on the left of what the proxy adds."""
    assert await counted_as(["127.0.0.0/8"], FORWARDED) == "198.51.100.7"


async def test_anybody_else_is_counted_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    assert await counted_as(["10.0.0.1"], FORWARDED) == "127.0.0.1"
    assert await counted_as([], FORWARDED) == "127.0.0.1"


async def test_a_trusted_proxy_that_says_nothing_is_its_own_client() -> None:
    assert await counted_as(["127.0.0.1"], {}) == "127.0.0.1"
