"""The comparison of engines counts tokens, not bytes, and gives both engines the same script."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bench.engine import chats
from bench.engine.chats import Load, percentile
from bench.engine.contestants import Ask, Contestant, Engine
from bench.engine.speeds import rate
from bench.engine.streams import Answer, Failed
from bench.engine.words import Words

OURS, PEER = Contestant("ours"), Contestant("llama-server")
Events = list[dict[str, Any]]
OURS_EVENTS: Events = [
    {"choices": [{"token_ids": [5]}], "usage": None},
    {"choices": [{"token_ids": [6, 7]}], "usage": None},
    {"choices": [], "usage": {"prompt_tokens_details": {"cached_tokens": 3}}},
]
PEER_EVENTS: Events = [
    {"tokens": [5]},
    {"tokens": [6, 7]},
    {"tokens": [], "timings": {"cache_n": 3}},
]
LOAD = Load(n_conversations=4, n_turns=3, n_system=9, reply_tokens=(4, 12), think_s=1e-6)


def answer_of(events: Events, *, whole: bool = True) -> bytes:
    """An HTTP answer whose chunks end in the middle of events."""
    data = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in events)
    data += b"data: [DONE]\n\n"
    pieces = [data[n : n + 7] for n in range(0, len(data), 7)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + chunks + (b"0\r\n\r\n" if whole else b"")


@asynccontextmanager
async def serving(contestant: Contestant, answer: bytes, seen: list[Any]) -> AsyncIterator[Engine]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        seen.append(json.loads(await reader.readexactly(length)))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield Engine(contestant, server.sockets[0].getsockname()[1], 0)


def complete(contestant: Contestant, answer: bytes) -> Answer:
    async def ask() -> Answer:
        async with serving(contestant, answer, []) as engine:
            return await engine.complete(Ask((1, 2, 3), 3))

    return asyncio.run(ask())


@pytest.mark.parametrize(("contestant", "events"), [(OURS, OURS_EVENTS), (PEER, PEER_EVENTS)])
def test_each_token_is_counted_once_however_the_bytes_come(
    contestant: Contestant, events: Events
) -> None:
    answer = complete(contestant, answer_of(events))
    assert answer.ids == [5, 6, 7]
    assert len(answer.token_s) == 3
    assert answer.n_cached == 3
    assert answer.sent_s <= answer.token_s[0] <= answer.token_s[-1]


def test_a_broken_stream_is_a_failure() -> None:
    with pytest.raises(Failed):
        complete(OURS, answer_of(OURS_EVENTS, whole=False))


def test_a_refusal_is_a_failure() -> None:
    with pytest.raises(Failed):
        complete(OURS, b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno")


def test_both_engines_are_asked_the_same() -> None:
    async def prompts(contestant: Contestant, events: Events) -> list[Any]:
        seen: list[Any] = []
        async with serving(contestant, answer_of(events), seen) as engine:
            await chats.play(engine, Words(list(range(50, 90))), LOAD, seed=1)
        return sorted((one["prompt"], one.get("max_tokens", one.get("n_predict"))) for one in seen)

    ours = asyncio.run(prompts(OURS, OURS_EVENTS))
    assert ours == asyncio.run(prompts(PEER, PEER_EVENTS))
    assert len(ours) == LOAD.n_conversations * LOAD.n_turns


def test_a_percentile_lies_between_its_neighbours() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.5
    assert percentile([1.0, 2.0], 100) == 2.0


def test_joining_and_leaving_are_no_part_of_the_speed() -> None:
    early, late = [0.0, 1.0, 2.0, 3.0, 4.0], [2.0, 3.0, 4.0]
    assert rate([early, late]) == 2.0
