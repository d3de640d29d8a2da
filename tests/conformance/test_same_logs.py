"""Memory and Valkey get the same random calls about logs, the wrong ones too; they answer alike.

In between Valkey's process forgets its tails, loses its connections, or loses a log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from tertulia.backends.memory import MemoryLog, MemoryStore
from tertulia.backends.valkey import ValkeyBackend
from tertulia.drills.valkey_server import ValkeyServers
from tertulia.ports import Log
from tests.conformance.world import ManualClock, entries

names = st.sampled_from(["m_r1", "m_r2"])
epochs = st.integers(0, 4)
attempts = st.integers(1, 4)
marks = st.sampled_from(["", "", "", "b"])

calls = st.one_of(
    st.tuples(st.just("fence"), names, epochs, attempts),
    st.tuples(st.just("append"), names, epochs, attempts, st.integers(0, 5), st.integers(0, 3)),
    st.tuples(st.just("go on"), names, st.integers(0, 3), marks),
    st.tuples(st.just("reseed"), names, epochs, attempts, st.integers(0, 6), marks),
    st.tuples(st.just("read"), names, st.integers(0, 6)),
    st.tuples(st.just("drop"), names),
    st.tuples(st.just("bury"), names),
    st.tuples(st.just("forget tails")),
    st.tuples(st.just("lose connections")),
)


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(wanted=st.lists(calls, max_size=25))
def test_memory_and_valkey_answer_alike(
    wanted: Sequence[tuple[Any, ...]], valkey_server: ValkeyServers
) -> None:
    valkey_server[0].command("FLUSHALL")
    asyncio.run(_compare(wanted, valkey_server))


async def _compare(wanted: Sequence[tuple[Any, ...]], servers: ValkeyServers) -> None:
    memory = MemoryLog(MemoryStore(ManualClock()))
    valkey = await ValkeyBackend.open(servers.urls)
    try:
        for what, *words in wanted:
            if what == "forget tails":
                for reply_id in list(valkey.log._tails._tails):
                    valkey.log._tails._leave(reply_id)
            elif what == "lose connections":
                servers[0].command("CLIENT", "KILL", "TYPE", "pubsub")
                servers[0].command("CLIENT", "KILL", "TYPE", "normal")
            else:
                reference = await _call(memory, memory, what, *words)
                assert await _call(valkey.log, memory, what, *words) == reference, (what, words)
        for reply_id in ("m_r1", "m_r2"):
            assert await _view(valkey.log, reply_id, 0) == await _view(memory, reply_id, 0)
    finally:
        await valkey.close()


async def _call(log: Log, memory: MemoryLog, what: str, reply_id: str, *words: Any) -> object:
    if what == "fence":
        return await log.fence(reply_id, *words)
    if what == "append":
        epoch, attempt, first, more = words
        return await log.append(reply_id, epoch, attempt, entries(first, first + more - 1))
    if what == "go on":
        return await _go_on(log, memory, reply_id, *words)
    if what == "reseed":
        epoch, attempt, last, mark = words
        return await log.reseed(reply_id, epoch, attempt, entries(1, last, mark=mark))
    if what == "read":
        return await _view(log, reply_id, *words)
    if what == "drop":
        return await log.drop(reply_ids=[reply_id])
    await log.bury([reply_id])
    return None


async def _go_on(log: Log, memory: MemoryLog, reply_id: str, more: int, mark: str) -> object:
    """What the log's holder adds, once more the same when it is asked again."""
    held = memory._replies.get(reply_id)
    if held is None or held.buried_at is not None:
        return None
    # Memory has taken it already when Valkey is asked.
    first = len(held.entries) + 1 if log is memory else max(1, len(held.entries) - more + 1)
    added = entries(first, first + more - 1, mark=mark)
    return await log.append(reply_id, held.fence, held.attempt, added)


async def _view(log: Log, reply_id: str, after: int) -> object:
    view = await log.read(reply_id, after)
    return None if view is None else (view.attempt, view.last, tuple(view.entries))
