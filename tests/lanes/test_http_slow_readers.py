"""A client that does not read costs a bounded buffer and is cut; it loses nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import pytest

from tertulia.core.types import GenerateRequest, Said, Unit, Usage
from tertulia.gateway.patience import PatientHttp
from tests.lanes.gateway_rig import Rig, ScriptedReplicas, new_conversation, rig, text_of, until

pytestmark = pytest.mark.anyio

# One event; the whole reply is far more than the kernel keeps for two sockets.
SENTENCE = "a" * 64_000 + ". "
SENTENCES = 150
# What uvicorn lets wait before it stops taking, and one event that it took last.
MOST_WAITING = 65_536 + 2 * len(SENTENCE)


@dataclass
class Novelist(ScriptedReplicas):
    """Says long sentences, each as one token."""

    said: asyncio.Event = field(default_factory=asyncio.Event)

    async def generate(
        self, replica: str, request: GenerateRequest, **_more: object
    ) -> AsyncGenerator[Said, None]:
        for _ in range(SENTENCES):
            yield Said((Unit(SENTENCE, (11,)),))
            await asyncio.sleep(0)
        self.said.set()
        yield Said((), finish="stop", usage=Usage(1, 0, SENTENCES))


async def test_a_client_that_does_not_read_is_cut_and_goes_on_from_its_last_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused: list[PatientHttp] = []
    pause = PatientHttp.pause_writing

    def noted(protocol: PatientHttp) -> None:
        paused.append(protocol)
        pause(protocol)

    monkeypatch.setattr(PatientHttp, "pause_writing", noted)
    monkeypatch.setattr(PatientHttp, "unread_s", 0.3)
    replicas = Novelist()
    async with rig(replicas=replicas) as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        with await _ask_without_reading(here, conversation, client.headers["Authorization"]):
            await until(lambda: paused)
            await replicas.said.wait()
            assert _waiting(paused[0]) <= MOST_WAITING, "the reply went on without this reader"
            await until(lambda: not len(here.desk.streams))
        monkeypatch.undo()  # a client that reads is given its time, however busy the machine
        page = (await client.get(f"/v1/conversations/{conversation}/messages")).json()
        reply = page["items"][-1]
        stream = f"/v1/messages/{reply['id']}/stream"
        rest = await client.get(stream, headers={"Last-Event-ID": "2"})
        whole = await client.get(stream)
    assert text_of(whole.text) == SENTENCE * SENTENCES
    assert text_of(rest.text) == SENTENCE * (SENTENCES - 1)


async def test_a_client_that_reads_in_time_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientHttp, "unread_s", 5.0)
    replicas = Novelist()
    async with rig(replicas=replicas) as here:
        client = await here.user("ana")
        conversation = await new_conversation(client)
        key = client.headers["Authorization"]
        with await _ask_without_reading(here, conversation, key) as reader:
            await replicas.said.wait()
            got = bytearray()
            while b"event: done" not in got[-1_000:]:
                got += await asyncio.get_running_loop().sock_recv(reader, 1 << 20)
    assert got.count(b"event: delta") == SENTENCES


async def _ask_without_reading(here: Rig, conversation: str, key: str) -> socket.socket:
    """The client's socket after it has asked, with as little room as the kernel gives."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.setblocking(False)
    host, port = here.url.removeprefix("http://").split(":")
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, (host, int(port)))
    body = b'{"content":"Tell me."}'
    await loop.sock_sendall(
        client,
        f"POST /v1/conversations/{conversation}/messages HTTP/1.1\r\nHost: {host}\r\n"
        f"Authorization: {key}\r\nIdempotency-Key: k\r\nAccept: text/event-stream\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body,
    )
    return client


def _waiting(protocol: PatientHttp) -> int:
    # uvicorn says that its transports only read, and write to them.
    return protocol.transport.get_write_buffer_size()
