"""The client's end of a generation: a slow reader waits for nothing that has already come."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from tertulia.backends.replicas.stream import Connection, Generation, connect, request_bytes
from tertulia.core.types import GenerateRequest, Sampling
from tertulia.ports import ReplicaLost

PATIENCE_S = 10.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(text: str, number: int, finish: str | None = None) -> bytes:
    document = {"choices": [{"text": text, "finish_reason": finish, "token_ids": [number]}]}
    data = b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


@asynccontextmanager
async def replica() -> AsyncIterator[tuple[Connection, asyncio.StreamWriter]]:
    """A connection, and the replica's end of it."""
    ends: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()

    async def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends.set_result(writer)

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, asyncio.timeout(PATIENCE_S):
        connection = await connect(urlsplit(f"http://127.0.0.1:{port}"))
        writer = await ends
        try:
            yield connection, writer
        finally:
            connection.fail("the test is over")
            writer.close()


async def until(true: Callable[[], bool]) -> None:
    while not true():  # noqa: ASYNC110  # what it waits for has no event to wait on
        await asyncio.sleep(0.001)


@pytest.mark.anyio
async def test_a_reader_slower_than_the_pace_gets_what_came_meanwhile() -> None:
    async with replica() as (connection, writer):
        connection.send(b"POST / HTTP/1.1\r\n\r\n")
        generation = Generation(connection, pace_s=0.0)
        writer.write(HEAD + chunk("One ", 1))
        assert [unit.text for unit in (await generation.next()).units] == ["One "]
        writer.write(chunk("two.", 2))
        await until(lambda: b"two." in connection.take_body())
        assert [unit.text for unit in (await generation.next()).units] == ["two."]


@pytest.mark.anyio
async def test_a_resting_connection_hears_that_the_replica_closed_it() -> None:
    async with replica() as (connection, writer):
        connection.send(b"POST / HTTP/1.1\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await until(lambda: connection.complete)
        connection.rest()
        writer.close()
        await until(lambda: not connection.alive)


@pytest.mark.parametrize(("priorities", "sent"), [(True, 10), (False, None)])
def test_a_priority_is_sent_only_where_it_is_taken(priorities: bool, sent: int | None) -> None:
    request = GenerateRequest("r-1", "m", (1, 2), 8, Sampling(), priority=10, cache_salt="u_1")
    address = urlsplit("http://127.0.0.1:1")
    message = request_bytes(address, None, request, priorities=priorities, own_engine=False)
    body = json.loads(message.partition(b"\r\n\r\n")[2])
    assert body.get("priority") == sent


def test_what_all_share_and_the_conversation_are_told_to_our_own_engine_alone() -> None:
    request = GenerateRequest("r", "m", (1, 2), 8, Sampling(), 0, "u_1", 1, "c_1")
    address = urlsplit("http://127.0.0.1:1")
    sent = {}
    for own_engine in (True, False):
        message = request_bytes(address, None, request, priorities=False, own_engine=own_engine)
        sent[own_engine] = json.loads(message.partition(b"\r\n\r\n")[2])
    assert sent[True]["cache_shared_tokens"] == 1
    assert sent[True]["session_id"] == "c_1"
    assert sent[True].keys() - sent[False].keys() == {"cache_shared_tokens", "session_id"}


@pytest.mark.anyio
async def test_headers_without_end_end_the_connection() -> None:
    async with replica() as (connection, writer):
        connection.send(b"POST / HTTP/1.1\r\n\r\n")
        generation = Generation(connection, pace_s=0.0)
        writer.write(b"HTTP/1.1 200 OK\r\n" + b"X: 0123456789\r\n" * 10_000)
        with pytest.raises(ReplicaLost):
            await generation.next()


@pytest.mark.anyio
async def test_the_last_words_do_not_wait_for_a_usage_that_never_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tertulia.backends.replicas.stream.USAGE_S", 0.01)
    async with replica() as (connection, writer):
        connection.send(b"POST / HTTP/1.1\r\n\r\n")
        generation = Generation(connection, pace_s=0.0)
        writer.write(HEAD + chunk("All.", 1, finish="stop"))
        said = await generation.next()
        assert ([unit.text for unit in said.units], said.finish, said.usage) == (
            ["All."],
            "stop",
            None,
        )
        assert not connection.alive, "what may still come must not be read as another reply's"
