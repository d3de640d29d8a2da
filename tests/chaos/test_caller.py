"""Each way in which a call can end has its own word in the history."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET

import pytest

from tests.chaos.caller import ask, events, small
from tests.chaos.histories import Asked, Call, Writer, appending, lines_of, read

pytestmark = pytest.mark.anyio
MARK = "0123456789ab"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
Play = Callable[[asyncio.StreamWriter], Awaitable[None]]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(number: int, text: str) -> bytes:
    return f"id: {number}\nevent: delta\ndata: {text}\n\n".encode()


@asynccontextmanager
async def server(play: Play) -> AsyncGenerator[int, None]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            await play(writer)
        finally:
            writer.close()

    opened = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with opened:
        yield opened.sockets[0].getsockname()[1]


def a_call() -> Call:
    return Call("stream", "ann", "g1", 0.0)


async def followed(play: Play) -> Call:
    call = a_call()
    async with server(play) as port:
        answer = await ask(port, "GET", "/", {}, patience_s=1)
        async for _ in events(call, answer, 0.2):
            pass
    return call


async def test_a_whole_stream_is_closed_and_gives_events_marks_and_times() -> None:
    async def play(writer: asyncio.StreamWriter) -> None:
        text = event(1, f"say mark-{MARK}")
        writer.write(STREAM + chunk(b"retry: 1\n\n") + chunk(text[:20]) + chunk(text[20:]))
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    call = await followed(play)
    assert (call.end, call.outcome, call.marks) == ("closed", "ok", [MARK])
    assert [(one.id, one.kind) for one in call.events] == [(1, "delta")]


async def test_an_early_end_a_reset_and_a_silence_are_told_apart() -> None:
    async def end(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunk(event(1, "a")) + chunk(event(2, "b"))[:9])
        await writer.drain()

    async def reset(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunk(event(1, "a")))
        await writer.drain()
        await asyncio.sleep(0.05)  # what was sent must arrive before the reset does
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, linger)
        writer.transport.abort()

    async def silence(writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunk(event(1, "a")))
        await writer.drain()
        await asyncio.sleep(0.5)

    ends = [await followed(play) for play in (end, reset, silence)]
    assert [call.end for call in ends] == ["eof", "rst", "timeout"]
    assert [len(call.events) for call in ends] == [1, 1, 1]


async def test_a_refusal_is_a_failure_and_a_broken_answer_leaves_it_open() -> None:
    async def refuse(writer: asyncio.StreamWriter) -> None:
        body = b'{"code": "busy"}'
        writer.write(b"HTTP/1.1 503 -\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()

    async def hang_up(writer: asyncio.StreamWriter) -> None:
        return None

    refused, broken, nobody = a_call(), a_call(), a_call()
    async with server(refuse) as port:
        await small(refused, port, "POST", "/", {}, {"a": 1}, patience_s=1)
    assert (refused.outcome, refused.http, refused.code) == ("fail", 503, "busy")
    async with server(hang_up) as port:
        await small(broken, port, "POST", "/", {}, {"a": 1}, patience_s=1)
    assert (broken.outcome, broken.http, broken.end) == ("info", 0, "eof")
    await small(nobody, port, "POST", "/", {}, {"a": 1}, patience_s=1)
    assert (nobody.outcome, nobody.end) == ("fail", "refused")


async def test_a_history_is_read_as_it_was_written_but_for_a_torn_last_line(tmp_path: Path) -> None:
    path = tmp_path / "history"
    writer = Writer(path)
    asked = Asked("ann", "free", "c_1", "k", f"Why é? mark-{MARK}", MARK, 1.0)
    later, earlier = Call("post", "ann", "g1", 2.0), Call("post", "ann", "g2", 1.0)
    writer.asked(asked)
    writer.call(later)
    writer.call(earlier)
    writer.close()
    with path.open("a") as file:
        file.write('{"op": "po')
    assert read(path) == ([asked], [earlier, later])


def test_a_life_that_follows_a_cut_line_begins_on_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for line in (b'{"life": 1}\n', b'{"life": 1, "began": "m_', b'{"life": 2}\n'):
        file = appending(path)
        os.write(file, line)
        os.close(file)
    assert list(lines_of(path)) == [{"life": 1}, {"life": 2}]
