"""The client's end of a generation: a slow reader waits for nothing that has already come."""

from __future__ import annotations

import asyncio
import json
import select
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import urlsplit

import pytest

from tertulia.backends.replicas.pacer import TICKS, Pacer
from tertulia.backends.replicas.request import abort_body, request_bytes
from tertulia.backends.replicas.stream import Connection, Generation, connect
from tertulia.core.engines import ENGINES, EngineName
from tertulia.core.types import GenerateRequest, Sampling, Unit
from tertulia.ports import ReplicaLost

PATIENCE_S = 10.0
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(text: str, number: int, finish: str | None = None) -> bytes:
    document = {"choices": [{"text": text, "finish_reason": finish, "token_ids": [number]}]}
    data = b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


def chunk_end() -> bytes:
    """The end of the events and of the response."""
    return b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


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
        generation = Generation(connection, None)
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


ASKED = GenerateRequest("r-1", "m", (1, 2), 8, Sampling(), 1, "u_1", 1, "c_1")


def body_for(engine: EngineName, *, priorities: bool = True) -> dict[str, object]:
    address = urlsplit("http://127.0.0.1:1")
    message = request_bytes(address, None, ASKED, ENGINES[engine], priorities=priorities)
    body: dict[str, object] = json.loads(message.partition(b"\r\n\r\n")[2])
    return body


@pytest.mark.parametrize(("engine", "sent"), [("tertulia", 1), ("vllm", 1), ("sglang", -1)])
def test_a_priority_has_the_sign_of_its_engine(engine: EngineName, sent: int) -> None:
    assert body_for(engine)["priority"] == sent


def test_a_priority_is_sent_only_where_it_is_taken() -> None:
    assert "priority" not in body_for("vllm", priorities=False)


def test_what_all_share_and_the_conversation_are_told_to_our_own_engine_alone() -> None:
    ours, others = body_for("tertulia"), body_for("vllm")
    assert ours["cache_shared_tokens"] == 1
    assert ours["session_id"] == "c_1"
    assert ours.keys() - others.keys() == {"cache_shared_tokens", "session_id"}


def test_an_abort_names_the_request_as_its_engine_does() -> None:
    assert abort_body("r-1", ENGINES["vllm"]) == {"request_ids": ["cmpl-r-1"]}
    assert abort_body("r-1", ENGINES["sglang"]) == {"rid": body_for("sglang")["rid"]}


@pytest.mark.anyio
async def test_headers_without_end_end_the_connection() -> None:
    async with replica() as (connection, writer):
        connection.send(b"POST / HTTP/1.1\r\n\r\n")
        generation = Generation(connection, None)
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
        generation = Generation(connection, None)
        writer.write(HEAD + chunk("All.", 1, finish="stop"))
        said = await generation.next()
        assert ([unit.text for unit in said.units], said.finish, said.usage) == (
            ["All."],
            "stop",
            None,
        )
        assert not connection.alive, "what may still come must not be read as another reply's"


@pytest.mark.anyio
async def test_after_the_first_text_the_socket_is_read_once_a_pace() -> None:
    async with replica() as (connection, writer):
        connection.send(b"POST / HTTP/1.1\r\n\r\n")
        pacer = Hand()
        generation = Generation(connection, pacer)
        writer.write(HEAD + chunk("One", 1))
        assert [unit.text for unit in (await generation.next()).units] == ["One"]
        writer.write(chunk(" and", 2) + chunk(" two", 3))
        await readable(connection)
        assert connection.take_body() == b"", "nobody listens between two reads"
        pacer.turn()
        assert [unit.text for unit in (await generation.next()).units] == [" and", " two"]
        pacer.turn()  # nothing has come: from now on it listens
        writer.write(chunk(" three", 4))
        assert [unit.text for unit in (await generation.next()).units] == [" three"]


def ends_a_word(units: Sequence[Unit]) -> bool:
    return any("." in unit.text for unit in units)


@pytest.mark.anyio
async def test_what_is_not_ripe_waits_for_what_is_and_counts_as_heard() -> None:
    async with replica() as (connection, writer):
        connection.send(b"POST / HTTP/1.1\r\n\r\n")
        pacer, heard = Hand(), list[int]()
        generation = Generation(connection, pacer, ripens=ends_a_word, heard=heard.append)
        reading = asyncio.create_task(generation.next())
        writer.write(HEAD + chunk("One", 1))
        await until(lambda: heard == [1])
        writer.write(chunk(" and", 2) + chunk(" two", 3))
        await readable(connection)
        assert connection.take_body() == b"", "nobody listens between two reads"
        pacer.turn()
        assert heard == [1, 2]
        writer.write(chunk(".", 4) + chunk(" Three", 5))
        await readable(connection)
        pacer.turn()
        said = await reading
        assert [unit.text for unit in said.units] == ["One", " and", " two", ".", " Three"]
        assert (heard, said.finish) == ([1, 2, 2], None)
        reading = asyncio.create_task(generation.next())
        pacer.turn()
        writer.write(chunk(" four", 6))
        await until(lambda: heard == [1, 2, 2, 1])
        writer.write(chunk("", 7, finish="stop") + chunk_end())
        await readable(connection)
        pacer.turn()
        said = await reading
        assert ([unit.text for unit in said.units], said.finish) == ([" four"], "stop")


@pytest.mark.anyio
@pytest.mark.parametrize("broken", [b"", b"9\r\ndata: {\n\n\r\n"])
async def test_what_waited_is_given_before_the_loss(broken: bytes) -> None:
    async with replica() as (connection, writer):
        connection.send(b"POST / HTTP/1.1\r\n\r\n")
        pacer, heard = Hand(), list[int]()
        generation = Generation(connection, pacer, ripens=ends_a_word, heard=heard.append)
        reading = asyncio.create_task(generation.next())
        writer.write(HEAD + chunk("One", 1))
        await until(lambda: heard == [1])
        writer.write(broken)
        writer.close()
        await readable(connection)
        pacer.turn()
        assert [unit.text for unit in (await reading).units] == ["One"]
        pacer.turn()
        with pytest.raises(ReplicaLost):
            await generation.next()


@pytest.mark.anyio
async def test_a_replica_that_leaves_between_two_reads_is_lost_at_the_next() -> None:
    async with replica() as (connection, writer):
        connection.send(b"POST / HTTP/1.1\r\n\r\n")
        pacer = Hand()
        generation = Generation(connection, pacer)
        writer.write(HEAD + chunk("One", 1))
        await generation.next()
        writer.write(chunk(" two", 2))
        writer.close()
        await writer.wait_closed()
        await readable(connection)
        pacer.turn()
        assert [unit.text for unit in (await generation.next()).units] == [" two"]
        pacer.turn()
        with pytest.raises(ReplicaLost):
            await generation.next()


@pytest.mark.anyio
async def test_a_connection_that_was_cut_is_not_read_again() -> None:
    """Its descriptor may be another socket's by then."""
    async with replica() as (connection, writer):
        connection.send(b"POST / HTTP/1.1\r\n\r\n")
        pacer = Hand()
        generation = Generation(connection, pacer)
        writer.write(HEAD + chunk("One", 1))
        await generation.next()
        connection.cut("aborted")
        one, other = socket.socketpair()
        with one, other:
            other.send(b"another's")
            pacer.turn()
            assert one.recv(100, socket.MSG_DONTWAIT) == b"another's"


@pytest.mark.anyio
async def test_a_reader_that_never_comes_makes_the_replica_wait() -> None:
    async with replica() as (connection, writer):
        connection.send(b"POST / HTTP/1.1\r\n\r\n")
        writer.write(HEAD)
        many = chunk("word ", 1) * 1_000
        writer.transport.set_write_buffer_limits(high=0)
        sending = asyncio.create_task(_send(writer, many, times=1_000))
        done, _ = await asyncio.wait({sending}, timeout=0.5)
        assert not done, "gigabytes can't be on their way"
        sending.cancel()
        assert connection.alive
        assert len(connection.take_body()) < 1_000_000


@pytest.mark.anyio
async def test_the_pacer_reads_all_that_wait_and_rests_when_nobody_does() -> None:
    pacer, loop = Pacer(0.01), asyncio.get_running_loop()
    for _ in range(2):
        done = [loop.create_future() for _ in range(3)]
        began = loop.time()
        for each in done:
            pacer.later(partial(each.set_result, None))
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*done)
        # The event loop takes its timers up to a clock tick early.
        assert loop.time() - began >= 0.01 * (TICKS - 1) / TICKS - 0.001
        await until(lambda: not pacer.runs)


async def _send(writer: asyncio.StreamWriter, data: bytes, *, times: int) -> None:
    for _ in range(times):
        writer.write(data)
        await writer.drain()


class Hand(Pacer):
    """Paced by hand."""

    def __init__(self) -> None:
        super().__init__(1.0)
        self._due: list[Callable[[], None]] = []

    def later(self, read: Callable[[], None]) -> None:
        self._due.append(read)

    def turn(self) -> None:
        due, self._due = self._due, []
        for read in due:
            read()


async def readable(connection: Connection) -> None:
    """Until the kernel has something for it."""
    sockets = select.poll()
    sockets.register(connection.fd, select.POLLIN)
    await until(lambda: bool(sockets.poll(0)))
