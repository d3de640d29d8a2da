"""The clients' own HTTP: one connection a call, and every way in which one can break told apart.

It retries nothing and hides nothing: what a call met is what its history says.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tests.chaos.histories import MARK_LETTERS, Call, Event

_CONNECT_S: Final = 3.0
_MARK: Final = re.compile(rb"mark-([0-9a-f]{%d})" % MARK_LETTERS)
_BODY_BYTES: Final = 2_000_000


class Broken(Exception):
    """The call ended in a way that leaves open what happened at the server."""

    def __init__(self, end: str) -> None:
        super().__init__(end)
        self.end = end


@dataclass(slots=True)
class Answer:
    """The head of an answer; its body is read from `pieces`, once."""

    status: int
    headers: dict[str, str]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    def close(self) -> None:
        self.writer.transport.abort()

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes; Broken("eof") if it ends before it is whole."""
        reader = self.reader
        try:
            if self.headers.get("transfer-encoding") == "chunked":
                while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
                    yield (await reader.readexactly(size + 2))[:-2]
                await reader.readuntil(b"\r\n")
                return
            left = int(self.headers.get("content-length", "0"))
            if left > _BODY_BYTES:
                raise Broken("too large")
            if left:
                yield await reader.readexactly(left)
        except asyncio.IncompleteReadError as error:
            raise Broken("eof") from error
        except ConnectionError as error:
            raise Broken("rst") from error


async def ask(
    port: int,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: Any = None,
    *,
    patience_s: float,
) -> Answer:
    """The answer's head; Broken when none comes."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        data = json.dumps(body).encode() if body is not None else b""
        lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", "connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"content-length: {len(data)}"]
        lines += ["content-type: application/json"] if data else []
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        async with asyncio.timeout(patience_s):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except TimeoutError as error:
        _drop(writer)
        raise Broken("timeout") from error
    except asyncio.IncompleteReadError as error:
        _drop(writer)
        raise Broken("eof") from error
    except ConnectionRefusedError as error:
        raise Broken("refused") from error
    except ConnectionError as error:
        _drop(writer)
        raise Broken("rst") from error
    except asyncio.CancelledError:
        _drop(writer)
        raise
    first, *rest = head.split("\r\n")
    fields = (line.partition(": ") for line in rest if line)
    named = {name.lower(): value for name, _, value in fields}
    return Answer(int(first.split(" ")[1]), named, reader, writer)


async def small(
    call: Call,
    port: int,
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: Any = None,
    *,
    patience_s: float,
) -> Any:
    """A call whose whole answer is wanted: its JSON (None if there is none). Fills `call` in."""
    answer: Answer | None = None
    try:
        answer = await ask(port, method, path, headers, body, patience_s=patience_s)
        async with asyncio.timeout(patience_s):
            data = b"".join([piece async for piece in answer.pieces()])
    except TimeoutError:
        call.end = "timeout"
        return None
    except Broken as broken:
        note_end(call, broken)
        return None
    finally:
        call.t1 = time.monotonic()
        if answer is not None:
            answer.close()
    return note_answer(call, answer, data)


def note_end(call: Call, broken: Broken) -> None:
    """How a call broke, in its history."""
    call.end = broken.end  # type: ignore[assignment]  # `Broken` carries the words of `End`
    if broken.end == "refused":
        call.outcome = "fail"  # nobody listened: it did not happen


def note_answer(call: Call, answer: Answer, data: bytes) -> Any:
    """What a call was answered, in its history; the answer's JSON."""
    call.http, call.end = answer.status, "closed"
    call.outcome = "ok" if answer.status < 400 else "fail"
    call.marks = marks_in(data)
    value = None
    with suppress(ValueError):
        value = json.loads(data) if data else None
    if answer.status >= 400 and isinstance(value, dict):
        call.code = str(value.get("code", ""))
    return value


async def events(call: Call, answer: Answer, silence_s: float) -> AsyncGenerator[Event, None]:
    """The events of a stream as they come, each noted in `call` before it is given out.

    It ends with the stream, however that ends; `call.end` says how.
    """
    call.http, call.outcome = answer.status, "ok"
    rest = b""
    pieces = answer.pieces()
    try:
        while True:
            async with asyncio.timeout(silence_s):
                piece = await anext(pieces, None)
            if piece is None:
                call.end = "closed"
                return
            *blocks, rest = (rest + piece).split(b"\n\n")
            call.marks = sorted({*call.marks, *marks_in(piece), *marks_in(rest)})
            for block in blocks:
                event = _event_of(block)
                if event is not None:
                    call.events.append(event)
                    yield event
    except TimeoutError:
        call.end = "timeout"
    except Broken as broken:
        note_end(call, broken)
    finally:
        call.end = call.end or "left"
        call.t1 = time.monotonic()
        await pieces.aclose()
        answer.close()


def _event_of(block: bytes) -> Event | None:
    number, kind, data = None, "", None
    for line in block.decode().split("\n"):
        name, _, value = line.partition(": ")
        if name == "id":
            number = int(value)
        elif name == "event":
            kind = value
        elif name == "data":
            data = value
    return Event(number, kind, data, time.monotonic()) if data is not None else None


def marks_in(data: bytes) -> list[str]:
    """The marks in some bytes, each once."""
    return sorted({found.decode() for found in _MARK.findall(data)})


def _drop(writer: asyncio.StreamWriter | None) -> None:
    if writer is not None:
        writer.transport.abort()
