"""Valkey that dies, freezes, forgets, fails over or goes deaf: no entry lost, none changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tertulia.backends.valkey import ValkeyBackend
from tertulia.core.types import Append
from tertulia.drills.valkey_server import (
    ValkeyServer,
    ValkeyServers,
    cluster,
    primary_and_replica,
)
from tertulia.ports import StoreUnavailable
from tertulia.worker.pen import Pen
from tests.conformance.world import entries
from tests.valkey.conftest import Open
from tests.valkey.proxy import Proxy
from tests.valkey.writing import AlwaysHeld, Follower, all_of, say, soon, take

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

PROMPT_S = 20.0
WORDS = [f"word{n} " for n in range(60)]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[ValkeyServers]:
    with primary_and_replica(tmp_path) as servers:
        yield servers


@asynccontextmanager
async def reply_under_way(writer: ValkeyBackend, reader: ValkeyBackend) -> AsyncIterator[Pen]:
    """A reply that one process writes and another follows; at the end both have all of it."""
    pen = await take(writer.log, "m_1")
    follower = Follower(reader.log, "m_1")
    async with asyncio.timeout(30):
        await say(pen, *WORDS[:20])
        await follower.until(20)
        going_on = asyncio.create_task(follower.until(len(WORDS)))
        yield pen
        await say(pen, *WORDS[len(pen.entries) :])
        await going_on
    assert [follower.seen[1, n + 1] for n in range(len(WORDS))] == pen.entries
    assert await all_of(reader.log, "m_1") == (1, pen.entries)


@pytest.mark.parametrize("kept", [True, False], ids=["with its file", "empty"])
async def test_a_server_that_is_killed_and_started_again_costs_a_pause(
    tmp_path: Path, opened: Open, kept: bool
) -> None:
    options = [("appendonly", "yes"), ("appendfsync", "always")] if kept else []
    server = ValkeyServer(tmp_path / "one", *options).start()
    try:
        writer, reader = await opened(server.url), await opened(server.url)
        async with reply_under_way(writer, reader) as pen:
            writing = asyncio.create_task(say(pen, *WORDS[20:50]))
            await soon(lambda: len(pen.entries) > 25)
            server.kill()
            server.start()
            await writing
    finally:
        server.kill()


async def test_a_server_that_freezes_for_a_second_loses_nothing(
    own_server: ValkeyServer, opened: Open
) -> None:
    writer, reader = await opened(own_server.url), await opened(own_server.url)
    async with reply_under_way(writer, reader) as pen:
        own_server.freeze()
        writing = asyncio.create_task(say(pen, "late "))
        await asyncio.sleep(1.0)
        own_server.thaw()
        await writing
        await reader.homes.find("c_1")


async def test_a_call_to_a_frozen_server_ends_in_time(
    own_server: ValkeyServer, opened: Open
) -> None:
    backend = await opened(own_server.url, budget_s=0.3)
    own_server.freeze()
    async with asyncio.timeout(PROMPT_S):
        with pytest.raises(StoreUnavailable):
            await backend.log.fence("m_1", 1, 1)
        with pytest.raises(StoreUnavailable):
            await backend.log.read("m_1", 0)
    own_server.thaw()


async def test_everything_forgotten_while_appending_is_written_again(
    own_server: ValkeyServer, opened: Open
) -> None:
    writer, reader = await opened(own_server.url), await opened(own_server.url)
    async with reply_under_way(writer, reader) as pen:
        for n in range(20, 50, 10):
            own_server.command("FLUSHALL")
            await say(pen, *WORDS[n : n + 10])
        assert isinstance(pen._queue, AlwaysHeld)
        assert pen._queue.asked == 3


async def test_lost_scripts_are_sent_again(own_server: ValkeyServer, opened: Open) -> None:
    backend = await opened(own_server.url)
    await backend.log.fence("m_1", 1, 1)
    own_server.command("SCRIPT", "FLUSH")
    assert await backend.log.append("m_1", 1, 1, entries(1, 2)) is Append.DONE


async def test_connections_that_are_cut_are_made_again_and_nothing_is_lost(
    own_server: ValkeyServer, opened: Open
) -> None:
    writer, reader = await opened(own_server.url), await opened(own_server.url)
    async with reply_under_way(writer, reader) as pen:
        for n in range(20, 50):
            own_server.command("CLIENT", "KILL", "TYPE", "normal")
            own_server.command("CLIENT", "KILL", "TYPE", "pubsub")
            await say(pen, WORDS[n])
        assert isinstance(pen._queue, AlwaysHeld)
        assert pen._queue.asked == 0


async def test_a_half_open_connection_is_noticed_by_writer_and_reader(
    own_server: ValkeyServer, opened: Open
) -> None:
    async with Proxy(own_server.port) as to_writer, Proxy(own_server.port) as to_reader:
        writer = await opened(to_writer.url, own_server.url, budget_s=0.5)
        reader = await opened(to_reader.url, own_server.url)
        async with reply_under_way(writer, reader) as pen:
            to_reader.deaf = True
            await say(pen, *WORDS[20:40])
            to_writer.deaf = True
            await say(pen, *WORDS[40:50])
            to_reader.deaf = to_writer.deaf = False


async def test_a_failover_with_a_lost_end_is_healed_by_the_live_owner(
    pair: ValkeyServers, opened: Open
) -> None:
    writer, reader = await opened(*pair.urls), await opened(*pair.urls)
    async with reply_under_way(writer, reader) as pen:
        pair[1].fall_behind(pair[0])
        await say(pen, *WORDS[20:30])
        pair[0].kill()
        pair[1].promote()
        assert pair[1].command("XLEN", "tertulia:entries:{m_1}") <= 20
        await say(pen, *WORDS[30:40])
        assert isinstance(pen._queue, AlwaysHeld)
        assert pen._queue.asked == 1


async def test_a_failover_whose_owner_is_dead_begins_another_attempt(
    pair: ValkeyServers, opened: Open
) -> None:
    writer, reader = await opened(*pair.urls), await opened(*pair.urls)
    pen = await take(writer.log, "m_1")
    await say(pen, *WORDS[:10])
    pair[0].kill()
    pair[1].promote()
    follower = Follower(reader.log, "m_1")
    async with asyncio.timeout(PROMPT_S):
        heir = await take_when_possible(writer, "m_1", epoch=2)
        assert (heir.turn.attempt, heir.entries) == (2, [])
        await say(heir, *WORDS[:3])
        await follower.until(3, attempt=2)
    assert await writer.log.append("m_1", 1, 1, entries(11, 11)) is Append.STALE


async def test_an_owner_whose_fence_was_lost_shuts_its_predecessor_out_again(
    pair: ValkeyServers, opened: Open
) -> None:
    """The replica believes that the first owner still holds the log, and so does that owner."""
    first, second = await opened(*pair.urls), await opened(*pair.urls)
    pen = await take(first.log, "m_1")
    await say(pen, *WORDS[:5])
    pair[1].fall_behind(pair[0])
    heir = await take(second.log, "m_1", epoch=2)
    await say(heir, "six ")
    pair[0].kill()
    pair[1].promote()
    async with asyncio.timeout(PROMPT_S):
        answer = await until_answered(first, 1, len(pen.entries) + 1)
        assert answer is Append.MISSING  # not DONE: it must ask the store whether it is the owner
        await say(heir, "seven ")
        assert await first.log.append("m_1", 1, 1, entries(6, 6)) is Append.STALE
        assert await first.log.reseed("m_1", 1, 1, pen.entries) is Append.STALE
        assert await all_of(first.log, "m_1") == (1, heir.entries)


async def test_a_primary_that_comes_back_beside_its_successor_is_not_followed(
    pair: ValkeyServers, opened: Open, tmp_path: Path
) -> None:
    third = ValkeyServer(tmp_path / "third").start()
    try:
        backend = await opened(*pair.urls)
        pair[0].kill()
        pair[1].promote()
        third.follow(pair[1])
        pair[0].start()
        later = await opened(*pair.urls)
        async with asyncio.timeout(PROMPT_S):
            await until_fenced(backend, "m_1", 1)
            await until_fenced(later, "m_1", 2)
        assert b"m_1" in b"".join(pair[1].command("KEYS", "*"))
        assert pair[0].command("KEYS", "*") == []
    finally:
        third.kill()


@pytest.mark.slow
async def test_a_cluster_that_elects_another_primary_serves_on(
    tmp_path: Path, opened: Open
) -> None:
    with cluster(tmp_path, replicas=True) as servers:
        writer, reader = await opened(*servers.urls[:3]), await opened(servers.urls[4])
        pens = [await take(writer.log, f"m_{n}") for n in range(12)]
        for pen in pens:
            await say(pen, *WORDS[:5])
        followers = [Follower(reader.log, f"m_{n}") for n in range(12)]
        servers[0].kill()
        async with asyncio.timeout(40):
            await asyncio.gather(*(say(pen, *WORDS[5:10]) for pen in pens))
            await asyncio.gather(*(follower.until(10) for follower in followers))
        for pen, follower in zip(pens, followers, strict=True):
            assert [follower.seen[1, n] for n in range(1, 11)] == pen.entries


async def take_when_possible(backend: ValkeyBackend, reply_id: str, *, epoch: int) -> Pen:
    while True:
        try:
            return await take(backend.log, reply_id, epoch=epoch)
        except StoreUnavailable:
            continue


async def until_fenced(backend: ValkeyBackend, reply_id: str, epoch: int) -> None:
    await take_when_possible(backend, reply_id, epoch=epoch)


async def until_answered(backend: ValkeyBackend, epoch: int, seq: int) -> Append:
    while True:
        try:
            return await backend.log.append("m_1", epoch, 1, entries(seq, seq))
        except StoreUnavailable:
            continue
