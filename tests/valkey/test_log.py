"""What the list of promises can't see: two processes, memory, time-outs, what a server keeps."""

from __future__ import annotations

import asyncio
import json

import pytest

from tertulia.backends.valkey import ValkeyBackend
from tertulia.backends.valkey.entries import EntriesBroken, packed, unpacked
from tertulia.backends.valkey.log import OPEN_KEPT_S
from tertulia.backends.valkey.tails import Tails
from tertulia.core.fleet import Home, ReplicaReport
from tertulia.core.turn import LOG_KEPT_S
from tertulia.core.types import Append, Entry, Fenced
from tertulia.drills.valkey_server import ValkeyServer
from tests.conformance.world import entries
from tests.valkey.conftest import Open
from tests.valkey.writing import Follower, all_of, say, soon, take

pytestmark = pytest.mark.anyio

PROMPT_S = 20.0
LONG_S = 50.0
END = Entry(3, "done", b'{"finish":"stop"}')
HEAD, ENTRIES = "tertulia:log:{m_1}", "tertulia:entries:{m_1}"


def test_entries_come_back_as_they_were() -> None:
    tricky = [
        Entry(7, "meta", b'{"a":"\n 1 2\n"}', b""),
        Entry(8, "delta", b"", bytes(range(256))),
        Entry(9, "done", "né🙂".encode(), b"\n"),
    ]
    assert unpacked(packed(tricky), last=9) == tricky
    assert unpacked(b"", last=0) == []
    newer = unpacked(b"applause 2 0\n{}", last=1)[0]
    assert (newer.kind, newer.data) == ("applause", b"{}")
    for broken in (b"delta 5 0\n{}", b"delta\n", b"delta x 0\n", b"no end", packed(tricky)[:-1]):
        with pytest.raises(EntriesBroken):
            unpacked(broken, last=9)
    for backwards in (b"d 0 -7\n", b"d -7 0\n", b"d 7 -14\n"):
        with pytest.raises(EntriesBroken):
            unpacked(backwards, last=9)
    with pytest.raises(EntriesBroken):
        unpacked(packed(tricky), last=2)


async def test_a_log_that_cannot_be_read_is_lost(server: ValkeyServer, opened: Open) -> None:
    """Else nobody could take it, go on or end the turn, however often it is claimed."""
    backend = await opened(server.url)
    await say(await take(backend.log, "m_1"), "a ", "b ")
    server.command("DEL", "tertulia:entries:{m_1}")
    server.command("XADD", "tertulia:entries:{m_1}", "2-0", "e", "no entries")
    assert await backend.log.read("m_2", 0) is None
    fenced = await backend.log.fence("m_1", 2, 1)
    assert fenced is not None
    assert fenced.attempt > 1
    assert fenced.entries == ()
    assert await backend.log.append("m_1", 2, fenced.attempt, entries(1, 1)) is Append.DONE


async def test_what_one_process_appends_another_follows(server: ValkeyServer, opened: Open) -> None:
    writer, reader = await opened(server.url), await opened(server.url)
    pen = await take(writer.log, "m_1")
    follower = Follower(reader.log, "m_1")
    following = asyncio.create_task(follower.until(200))
    async with asyncio.timeout(PROMPT_S):
        for n in range(200):
            await say(pen, f"word{n} ")
        await following
    assert list(follower.seen.values()) == pen.entries


async def test_a_log_follows_another_process_into_its_next_attempt(
    server: ValkeyServer, opened: Open
) -> None:
    writer, reader = await opened(server.url), await opened(server.url)
    await say(await take(writer.log, "m_1"), "a ", "b ")
    follower = Follower(reader.log, "m_1")
    async with asyncio.timeout(PROMPT_S):
        await follower.until(2)
        following = asyncio.create_task(follower.until(1, attempt=3))
        await asyncio.sleep(0)
        await say(await take(writer.log, "m_1", epoch=2, attempt=2), "c ")
        await following


@pytest.mark.parametrize("change", ["drop", "bury"])
async def test_a_log_that_ends_elsewhere_ends_here(
    server: ValkeyServer, opened: Open, change: str
) -> None:
    writer, reader = await opened(server.url), await opened(server.url)
    await say(await take(writer.log, "m_1"), "a ", "b ")
    assert await reader.log.read("m_1", 0) is not None
    waiting = asyncio.create_task(reader.log.wait("m_1", 1, 2, timeout_s=LONG_S))
    await asyncio.sleep(0)
    await (writer.log.bury(["m_1"]) if change == "bury" else writer.log.drop(reply_ids=["m_1"]))
    async with asyncio.timeout(PROMPT_S):
        await waiting
    assert await reader.log.read("m_1", 0) is None


async def test_followers_of_a_live_reply_ask_the_server_once(
    server: ValkeyServer, opened: Open
) -> None:
    writer, reader = await opened(server.url), await opened(server.url)
    pen = await take(writer.log, "m_1")
    await say(pen, "a ")
    followers = [Follower(reader.log, "m_1") for _ in range(20)]
    async with asyncio.timeout(PROMPT_S):
        await asyncio.gather(*(follower.until(1) for follower in followers))
        before = _calls(server)
        following = [asyncio.create_task(follower.until(50)) for follower in followers]
        for n in range(49):
            await say(pen, f"word{n} ")
        await asyncio.gather(*following)
    assert _calls(server) - before <= 49 + 5  # the appends, and hardly anything else


async def test_who_follows_before_a_reply_begins_asks_the_server_no_more(
    server: ValkeyServer, opened: Open
) -> None:
    """Neither another process, which hears of the first claim, nor the writer's own."""
    writer, reader = await opened(server.url), await opened(server.url)
    followers = [Follower(log.log, "m_1") for log in (writer, reader, reader)]
    following = [asyncio.create_task(follower.until(50)) for follower in followers]
    for log in (writer.log, reader.log):
        await soon(lambda log=log: "m_1" in log._tails._tails and log._tails._tails["m_1"].live)
    before = _calls(server)
    async with asyncio.timeout(PROMPT_S):
        pen = await take(writer.log, "m_1")
        for n in range(50):
            await say(pen, f"word{n} ")
        await asyncio.gather(*following)
    assert _calls(server) - before == 1 + 50


async def test_a_reader_that_saw_more_elsewhere_is_told_all_of_it(
    server: ValkeyServer, opened: Open
) -> None:
    """Its last gateway may have heard sooner than this one: it isn't told that it is ahead."""
    writer, reader = await opened(server.url), await opened(server.url)
    pen = await take(writer.log, "m_1")
    await say(pen, "a ")
    assert await all_of(reader.log, "m_1") == (1, pen.entries)
    reader._client.feed._channels[reader.log._tails._channel("m_1")].heard = _deaf
    await say(pen, "b ", "c ")
    view = await reader.log.read("m_1", 2)
    assert view is not None
    assert (view.last, list(view.entries)) == (3, pen.entries[2:])


async def test_a_message_that_was_lost_on_its_way_is_noticed_within_a_wait(
    server: ValkeyServer, opened: Open
) -> None:
    writer, reader = await opened(server.url), await opened(server.url)
    pen = await take(writer.log, "m_1")
    await say(pen, "a ")
    await reader.log.read("m_1", 0)
    reader._client.feed._channels[reader.log._tails._channel("m_1")].heard = _deaf
    await say(pen, "b ")
    await reader.log.wait("m_1", 1, 1, timeout_s=0.05)
    assert await all_of(reader.log, "m_1") == (1, pen.entries)


async def test_a_hole_in_what_was_heard_makes_it_read_again(
    server: ValkeyServer, opened: Open
) -> None:
    writer, reader = await opened(server.url), await opened(server.url)
    pen = await take(writer.log, "m_1")
    follower = Follower(reader.log, "m_1")
    await say(pen, "a ")
    async with asyncio.timeout(PROMPT_S):
        await follower.until(1)
        channel = reader._client.feed._channels[reader.log._tails._channel("m_1")]
        missed: list[bytes] = []
        listen, channel.heard = channel.heard, missed.append
        await say(pen, "b ")
        await soon(lambda: missed)
        channel.heard = listen
        await say(pen, "c ")
        await follower.until(3)
    assert list(follower.seen.values()) == pen.entries


async def test_a_reader_that_is_too_slow_is_cut_and_loses_nothing(
    own_server: ValkeyServer, opened: Open
) -> None:
    """The server holds a bounded part back for it; what it missed is read from the log."""
    own_server.command("CONFIG", "SET", "client-output-buffer-limit", "pubsub 200000 0 0")
    writer, reader = await opened(own_server.url), await opened(own_server.url)
    await writer.log.fence("m_1", 1, 1)
    said = [Entry(n, "delta", b"%d" % n * 100_000) for n in range(1, 500)]
    await writer.log.append("m_1", 1, 1, said[:1])
    follower = Follower(reader.log, "m_1")
    async with asyncio.timeout(30):
        await follower.until(1)
        node = reader._client.node_of(0)
        assert node is not None
        assert node.feed is not None
        slow = node.feed
        assert slow._transport is not None
        slow._transport.pause_reading()
        n = 1
        while b"ssub=1" in own_server.command("CLIENT", "LIST", "TYPE", "pubsub"):
            await writer.log.append("m_1", 1, 1, said[n : n + 1])
            n += 1
            slow._unheard = 0  # only the server cuts it here
        assert n < len(said)  # the sockets between hold some 30 MB
        slow._transport.resume_reading()
        await follower.until(n)
    assert list(follower.seen.values()) == said[:n]


async def test_memory_for_followed_replies_is_bounded(server: ValkeyServer, opened: Open) -> None:
    writer, reader = await opened(server.url), await opened(server.url)
    tails = reader.log._tails = Tails(
        reader._client.feed, reader.log._read, reader.log._tails._channel, tail_bytes=20_000
    )
    for n in range(20):
        await writer.log.fence(f"m_{n}", 1, 1)
        await writer.log.append(f"m_{n}", 1, 1, [Entry(1, "delta", b"x" * 1500)])
        await reader.log.read(f"m_{n}", 0)
    assert len(tails._tails) <= 5
    assert tails._size == sum(tail.size for tail in tails._tails.values())
    await soon(lambda: len(server.command("PUBSUB", "SHARDCHANNELS")) <= 5)
    waiting = asyncio.create_task(reader.log.wait("m_0", 1, 1, timeout_s=LONG_S))
    await soon(lambda: "m_0" in tails._tails and tails._tails["m_0"].live)
    for n in range(1, 20):
        await reader.log.read(f"m_{n}", 0)  # its tail has to make room
    await writer.log.append("m_0", 1, 1, entries(2, 2))
    async with asyncio.timeout(PROMPT_S):
        await waiting


async def test_a_tail_that_nobody_reads_is_left(
    server: ValkeyServer, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tertulia.backends.valkey.tails._UNREAD_S", 0.0)
    reader = await opened(server.url)
    await reader.log.read("m_1", 0)
    await reader.log.read("m_2", 0)
    assert list(reader.log._tails._tails) == ["m_2"]
    await soon(lambda: server.command("PUBSUB", "SHARDCHANNELS") == [b"tertulia:log:{m_2}"])


async def test_a_log_lives_an_hour_while_open_and_minutes_after_its_end(
    server: ValkeyServer, opened: Open
) -> None:
    log = (await opened(server.url)).log
    await log.fence("m_1", 1, 1)
    assert _lives_s(server, HEAD) == OPEN_KEPT_S
    server.command("PEXPIRE", HEAD, "1000000")
    await log.append("m_1", 1, 1, entries(1, 2))
    assert (_lives_s(server, HEAD), _lives_s(server, ENTRIES)) == (OPEN_KEPT_S, OPEN_KEPT_S)
    await log.append("m_1", 1, 1, [END])
    assert (_lives_s(server, HEAD), _lives_s(server, ENTRIES)) == (LOG_KEPT_S, LOG_KEPT_S)
    await log.fence("m_1", 2, 1)
    assert (_lives_s(server, HEAD), _lives_s(server, ENTRIES)) == (OPEN_KEPT_S, OPEN_KEPT_S)
    await log.bury(["m_1"])
    assert (_lives_s(server, HEAD), server.command("EXISTS", ENTRIES)) == (3600, 0)


async def test_a_log_of_which_a_full_server_threw_away_a_part_counts_as_lost(
    server: ValkeyServer, opened: Open
) -> None:
    log = (await opened(server.url)).log
    await log.fence("m_1", 1, 1)
    await log.append("m_1", 1, 1, entries(1, 2))
    server.command("DEL", ENTRIES)
    assert await log.append("m_1", 1, 1, entries(3, 3)) is Append.MISSING
    assert await log.reseed("m_1", 1, 1, entries(1, 2)) is Append.DONE
    assert await log.append("m_1", 1, 1, entries(3, 3)) is Append.DONE
    server.command("DEL", ENTRIES)
    fresh = await opened(server.url)
    assert await fresh.log.read("m_1", 0) is None
    assert await log.fence("m_1", 2, 1) == Fenced(2, ())


async def test_a_report_of_another_version_is_read_as_far_as_it_is_known(
    server: ValkeyServer, opened: Open
) -> None:
    registry = (await opened(server.url)).registry
    told = {"name": "a", "incarnation": "i", "url": "http://a", "model": "m", "slots": 4}
    newer = json.dumps(told | {"mood": "good"})
    server.command("HSET", "tertulia:registry", "a", f"{_now_ms(server)} i\n- 1 {newer}")
    (report,) = await registry.reports()
    assert (report.name, report.slots, report.running) == ("a", 4, 0)


async def test_everything_of_ours_ends_by_itself(server: ValkeyServer, opened: Open) -> None:
    """A Valkey that is shared or full must never keep what nobody asks for any more."""
    backend: ValkeyBackend = await opened(server.url)
    await say(await take(backend.log, "m_1"), "a ")
    await backend.homes.move("c_1", Home("a", 1))
    await backend.registry.report(ReplicaReport("a", "i", "u", "m", 4))
    await backend.log.bury(["m_2"])
    for key in server.command("KEYS", "*"):
        assert server.command("PTTL", key) > 0, key


def _lives_s(server: ValkeyServer, key: str) -> float:
    return float(round(server.command("PTTL", key) / 1000))


def _now_ms(server: ValkeyServer) -> int:
    return int(server.command("TIME")[0]) * 1000


def _calls(server: ValkeyServer) -> int:
    """How many scripts the server has run."""
    lines = server.info("commandstats").splitlines()
    (calls,) = [line for line in lines if line.startswith("cmdstat_evalsha:")]
    return int(calls.partition("calls=")[2].partition(",")[0])


def _deaf(_: bytes) -> None:
    """A message that never came."""
