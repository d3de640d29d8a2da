"""The relay does to a connection exactly what it is told, and otherwise nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from tests.chaos.proxy import Relay, Weather, apply

pytestmark = pytest.mark.anyio
# Longer than anything on loopback takes, short enough to wait for what must not come.
SILENT_S = 0.15


@dataclass
class Far:
    """The server behind the relay: keeps what it got, and each connection's writer."""

    got: bytearray = field(default_factory=bytearray)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    ends: list[str] = field(default_factory=list)
    dialled: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while piece := await reader.read(1000):
                self.got += piece
                self.news.set()
            self.ends.append("eof")
        except ConnectionError:
            self.ends.append("rst")
        finally:
            self.news.set()
            writer.close()

    async def heard(self, what: bytes) -> None:
        async with asyncio.timeout(5):
            while bytes(self.got) != what:
                self.news.clear()
                await self.news.wait()

    async def all_ended(self) -> None:
        async with asyncio.timeout(5):
            while len(self.ends) < len(self.writers):
                self.news.clear()
                await self.news.wait()


@asynccontextmanager
async def relayed() -> AsyncGenerator[tuple[Relay, Far], None]:
    far = Far()
    server = await asyncio.start_server(far.serve, "127.0.0.1", 0)
    relay = Relay("127.0.0.1", server.sockets[0].getsockname()[1])
    await relay.open()
    try:
        yield relay, far
    finally:
        await relay.close()
        server.close()
        await far.all_ended()
        for writer in far.dialled:
            writer.close()


async def connected(relay: Relay, far: Far) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    far.dialled.append(writer)
    return reader, writer


async def is_silent(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(SILENT_S):
            await reader.read(1)
    except TimeoutError:
        return True
    return False


async def test_a_clear_relay_passes_every_byte_both_ways_and_then_the_end() -> None:
    async with relayed() as (relay, far):
        reader, writer = await connected(relay, far)
        writer.write(b"hello")
        await far.heard(b"hello")
        far.writers[0].write(b"x" * 300_000)
        assert await reader.readexactly(300_000) == b"x" * 300_000
        writer.write_eof()
        assert await reader.read() == b""
        assert far.ends == ["eof"]


async def test_what_meets_a_partition_waits_for_its_end() -> None:
    async with relayed() as (relay, far):
        reader, writer = await connected(relay, far)
        writer.write(b"a")
        await far.heard(b"a")
        relay.turn(Weather(held=frozenset(("up", "down"))))
        writer.write(b"b")
        far.writers[0].write(b"c")
        assert await is_silent(reader)
        assert bytes(far.got) == b"a"
        relay.turn(Weather())
        await far.heard(b"ab")
        assert await reader.readexactly(1) == b"c"


async def test_one_way_may_be_held_alone() -> None:
    async with relayed() as (relay, far):
        reader, writer = await connected(relay, far)
        writer.write(b"a")
        await far.heard(b"a")
        apply(relay, {"relays": ["this"], "do": "turn", "held": ["down"]})
        writer.write(b"b")
        await far.heard(b"ab")
        far.writers[0].write(b"c")
        assert await is_silent(reader)


async def test_a_half_open_peer_never_hears_of_the_end_while_new_connections_pass() -> None:
    async with relayed() as (relay, far):
        reader, writer = await connected(relay, far)
        writer.write(b"a")
        await far.heard(b"a")
        assert relay.forget() == 1
        far.writers[0].close()
        assert await is_silent(reader)
        second, other = await connected(relay, far)
        other.write(b"b")
        await far.heard(b"ab")
        far.writers[1].write(b"c")
        assert await second.readexactly(1) == b"c"


async def test_a_reset_reaches_both_ends() -> None:
    async with relayed() as (relay, far):
        reader, writer = await connected(relay, far)
        writer.write(b"a")
        await far.heard(b"a")
        far.news.clear()
        assert relay.reset() == 1
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await asyncio.wait_for(far.news.wait(), 5)
        assert far.ends == ["rst"]


async def test_a_cut_breaks_within_a_character() -> None:
    async with relayed() as (relay, far):
        reader, writer = await connected(relay, far)
        writer.write(b"a")
        await far.heard(b"a")
        relay.cut("character")
        far.writers[0].write(b"plain")
        assert await reader.readexactly(5) == b"plain"
        far.writers[0].write("say é now".encode())
        assert await reader.readexactly(5) == b"say \xc3"
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_a_cut_breaks_in_the_middle_of_the_next_piece() -> None:
    async with relayed() as (relay, far):
        reader, writer = await connected(relay, far)
        writer.write(b"a")
        await far.heard(b"a")
        assert apply(relay, {"relays": ["this"], "do": "cut", "where": "middle"}) == 1
        far.writers[0].write(b"abcdef")
        assert await reader.readexactly(3) == b"abc"
        with pytest.raises(ConnectionResetError):
            await reader.read()


async def test_delay_and_trickle_are_slow_and_keep_the_order() -> None:
    loop = asyncio.get_running_loop()
    async with relayed() as (relay, far):
        reader, writer = await connected(relay, far)
        relay.turn(Weather(trickle=2, tick_s=0.02))
        begun_at = loop.time()
        writer.write(b"0123456789")
        await far.heard(b"0123456789")
        assert loop.time() - begun_at >= 4 * 0.02
        relay.turn(Weather(delay_s=0.1))
        begun_at = loop.time()
        far.writers[0].write(b"late")
        assert await reader.readexactly(4) == b"late"
        assert loop.time() - begun_at >= 0.1


async def test_a_relay_that_refuses_and_one_without_a_server_end_with_a_reset() -> None:
    async with relayed() as (relay, far):
        relay.turn(Weather(refuses=True))
        reader, _ = await connected(relay, far)
        with pytest.raises(ConnectionResetError):
            await reader.read()
    alone = Relay("127.0.0.1", relay.target)
    await alone.open()
    reader, writer = await connected(alone, far)
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()
    await alone.close()
