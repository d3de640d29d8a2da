"""A Postgres that dies, freezes or fills up in mid-traffic: what it acknowledged is kept whole."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tertulia.backends.postgres import database
from tertulia.core.types import Admitted, Status, Usage
from tertulia.drills.postgres_server import PostgresServer
from tertulia.ports import StoreFull, StoreUnavailable
from tests.conformance.cancels import cancel_at_random
from tests.conformance.postgres import (
    PostgresAndMemory,
    open_again,
    open_empty,
    run_sql,
    running_server,
)
from tests.conformance.world import (
    PLENTY,
    admitted,
    claimed,
    completed,
    conversation,
    message,
    stateless,
)

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

KILLS = 3
STREAMS = 8
ENDS = 25  # finished turns before each kill
CHARGED = 10
PROMPT_S = 20.0


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """Making one takes seconds: the tests of this module share it."""
    with running_server() as started:
        yield started


@pytest.fixture
def server(own_server: PostgresServer) -> Iterator[PostgresServer]:
    """A server that this test may ill-treat; then it runs again, or moves."""
    yield own_server
    if own_server.running:
        own_server.thaw()
    else:
        own_server.start()


@dataclass(slots=True)
class Told:
    """What the streams asked for, and what was acknowledged before the kill."""

    asked: list[str] = field(default_factory=list)
    admitted: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    enough: asyncio.Event = field(default_factory=asyncio.Event)


async def test_a_server_killed_in_mid_traffic_loses_nothing_that_it_acknowledged(
    server: PostgresServer, anyio_backend: str
) -> None:
    store = await open_empty(server.url, None)
    told = Told()
    for life in range(KILLS):
        told.enough.clear()
        until = len(told.finished) + ENDS
        streams = [
            asyncio.create_task(_turns(store, told, f"{life}_{n}", until)) for n in range(STREAMS)
        ]
        await told.enough.wait()
        await asyncio.to_thread(server.kill)
        ends = await asyncio.gather(*streams, return_exceptions=True)
        assert {type(end) for end in ends} == {StoreUnavailable}, ends
        with pytest.raises(StoreUnavailable):
            await store.accounts.count()
        server.start()
        await _demand_whole(store, told, server.url)  # the same pool: it connects again by itself
    assert len(told.finished) >= KILLS * ENDS
    await store.close()


async def _turns(store: PostgresAndMemory, told: Told, stream: str, until: int) -> None:
    await store.conversations.create("ana", f"c_{stream}", key=stream, prompt_version="v1")
    parent = None
    for n in range(10_000):
        new = message(
            f"{stream}_{n}", conversation=f"c_{stream}", parent_id=parent, answer_tokens=100
        )
        told.asked.append(new.reply_id)
        answer = await store.turns.admit(new, PLENTY)
        assert isinstance(answer, Admitted), answer
        told.admitted.add(new.reply_id)
        held = await store.turns.seize("ana", new.reply_id, "mine")  # a claim of just this one
        assert held is not None
        ended = completed(status=Status.STOPPED, usage=Usage(output=CHARGED))
        assert await store.turns.finish(held.held, ended)
        told.finished.add(new.reply_id)
        parent = new.reply_id
        if len(told.finished) >= until:
            told.enough.set()


async def _demand_whole(store: PostgresAndMemory, told: Told, url: str) -> None:
    ended = 0
    for reply_id in told.asked:
        turn = await store.turns.find("ana", reply_id)
        reply = await store.messages.find("ana", reply_id)
        question = await store.messages.find("ana", reply_id.replace("m_r", "m_u"))
        assert (turn is None) == (reply is None) == (question is None), f"{reply_id} is torn"
        if reply_id in told.admitted:
            assert turn is not None, f"{reply_id} was acknowledged and is gone"
        if turn is not None and reply is not None:
            ended += turn.status.is_final
            assert turn.status == reply.status
            assert turn.text == reply.content == ("Answer" if turn.status.is_final else "")
            if reply_id in told.finished:
                assert turn.status is Status.STOPPED, f"{reply_id} was finished and is open again"
    settled = await run_sql(url, "SELECT sum(output_tokens) FROM settlements")
    assert settled == ended * CHARGED, "a settlement is missing, or there is one too many"
    assert await store.ledger.check("ana") == {}


async def test_a_frozen_server_is_unavailable_in_a_bounded_time_and_then_is_not(
    server: PostgresServer, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "ANSWER_S", 0.5)
    store = await open_empty(server.url, None, connections=2)
    await admitted(store, stateless(1))
    server.freeze()
    async with asyncio.timeout(PROMPT_S):
        answers = await asyncio.gather(
            *(store.turns.admit(stateless(n), PLENTY) for n in range(2, 6)), return_exceptions=True
        )
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    server.thaw()
    async with asyncio.timeout(PROMPT_S):
        await _until_it_answers(store)
        assert (await claimed(store)).reply_id == "m_r1"
    await store.close()


async def _until_it_answers(store: PostgresAndMemory) -> None:
    while True:
        try:
            await store.accounts.count()
        except StoreUnavailable:
            continue
        return


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
async def test_a_full_disk_refuses_and_recovers(server: PostgresServer, anyio_backend: str) -> None:
    disk = Path(tempfile.mkdtemp(prefix="tertulia-disk-"))
    owner = server.folder.stat()
    if not _done("mount", "-t", "tmpfs", "-o", f"size=24m,uid={owner.st_uid}", "none", str(disk)):
        pytest.skip("this machine lets nobody mount")
    try:
        await run_sql(server.url, f"CREATE TABLESPACE small LOCATION '{disk}'")
        await run_sql(server.url, "CREATE DATABASE full_one TEMPLATE template0 TABLESPACE small")
        store = await open_again(server.url_of("full_one"), None, connections=2)
        await conversation(store)
        kept, refused = None, None
        for n in range(1000):
            new = message(n, parent_id=kept, content=os.urandom(20_000).hex())
            try:
                await admitted(store, new)
            except StoreFull:
                refused = new.reply_id
                break
            held = await claimed(store)
            kept = new.reply_id
            try:
                assert await store.turns.finish(held.held, completed())
            except StoreFull:
                refused = kept
                break
        assert kept is not None
        assert refused is not None
        if refused != kept:
            assert await store.turns.find("ana", refused) is None
            assert await store.messages.find("ana", refused.replace("m_r", "m_u")) is None
        assert _done("mount", "-o", "remount,size=64m", str(disk))
        turn = await store.turns.find("ana", kept)
        assert turn is not None
        assert turn.status.is_final == (refused != kept)
        await admitted(store, stateless("after"))
        await store.close()
        await run_sql(server.url, "DROP DATABASE full_one WITH (FORCE)")
        await run_sql(server.url, "DROP TABLESPACE small")
    finally:
        assert _done("umount", "-l", str(disk))
        disk.rmdir()


async def test_cancelled_calls_leave_the_pool_whole(
    postgres_server: PostgresServer, anyio_backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "ANSWER_S", 60.0)  # however busy the machine is
    store = await open_empty(postgres_server.url, None, connections=4)
    found = await cancel_at_random(store, calls=400, seed=1)
    assert found.cancelled > 50
    assert found.answered > 50
    await store.close()


def _done(*command: str) -> bool:
    return os.spawnvp(os.P_WAIT, command[0], command) == 0
