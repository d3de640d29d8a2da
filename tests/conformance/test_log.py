"""Promises of the `Log` port: one writer at a time, numbers without gap, and no missed wake-up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tertulia.core.types import Append, Entry, Fenced
from tests.conformance.world import (
    Backend,
    ManualClock,
    admitted,
    answered,
    claimed,
    completed,
    conversation,
    entries,
    message,
    stateless,
)

pytestmark = pytest.mark.anyio

LONG_S = 50.0  # a test that waits so long has failed
PROMPT_S = 5.0


async def test_the_first_fence_creates_an_empty_log_under_the_turns_attempt(
    backend: Backend,
) -> None:
    assert await backend.log.read("m_r1", 0) is None
    assert await backend.log.fence("m_r1", 1, 1) == Fenced(1, ())
    view = await backend.log.read("m_r1", 0)
    assert view is not None
    assert (view.attempt, view.last, list(view.entries)) == (1, 0, [])


async def test_a_log_that_was_lost_with_its_owner_begins_another_attempt(
    backend: Backend,
) -> None:
    assert await backend.log.fence("m_r1", 4, 1) == Fenced(2, ())


async def test_entries_go_on_without_gap_and_are_read_as_they_were_written(
    backend: Backend,
) -> None:
    await backend.log.fence("m_r1", 1, 1)
    assert await backend.log.append("m_r1", 1, 1, entries(1, 2)) is Append.DONE
    tricky = Entry(3, "delta", '{"text":"né\\u0000🙂"}'.encode(), bytes(range(256)))
    assert await backend.log.append("m_r1", 1, 1, [tricky]) is Append.DONE
    for after in range(5):
        view = await backend.log.read("m_r1", after)
        assert view is not None
        assert list(view.entries) == [*entries(1, 2), tricky][after:]
        assert view.last == 3


@pytest.mark.parametrize(
    "wrong",
    [entries(2, 2), entries(1, 1), entries(4, 5), (*entries(3, 3), *entries(5, 5)), entries(0, 3)],
    ids=["repeated", "begun again", "a hole before", "a hole inside", "from zero"],
)
async def test_entries_with_a_wrong_number_are_refused_whole(
    backend: Backend, wrong: tuple[Entry, ...]
) -> None:
    await backend.log.fence("m_r1", 1, 1)
    await backend.log.append("m_r1", 1, 1, entries(1, 2))
    assert await backend.log.append("m_r1", 1, 1, wrong) is Append.STALE
    view = await backend.log.read("m_r1", 0)
    assert view is not None
    assert list(view.entries) == list(entries(1, 2))
    assert await backend.log.append("m_r1", 1, 1, entries(3, 3)) is Append.DONE


async def test_appending_nothing_tells_whether_one_may(backend: Backend) -> None:
    assert await backend.log.append("m_r1", 1, 1, ()) is Append.MISSING
    await backend.log.fence("m_r1", 1, 1)
    assert await backend.log.append("m_r1", 1, 1, ()) is Append.DONE
    await backend.log.fence("m_r1", 2, 1)
    assert await backend.log.append("m_r1", 1, 1, ()) is Append.STALE


async def test_a_later_fence_takes_the_log_and_shuts_the_earlier_holder_out(
    backend: Backend,
) -> None:
    await backend.log.fence("m_r1", 1, 1)
    await backend.log.append("m_r1", 1, 1, entries(1, 3))
    assert await backend.log.fence("m_r1", 2, 1) == Fenced(1, entries(1, 3))
    assert await backend.log.append("m_r1", 1, 1, entries(4, 4)) is Append.STALE
    assert await backend.log.append("m_r1", 2, 1, entries(4, 4)) is Append.DONE
    assert await backend.log.fence("m_r1", 1, 1) is None


async def test_the_holder_can_fence_again(backend: Backend) -> None:
    await backend.log.fence("m_r1", 2, 1)
    await backend.log.append("m_r1", 2, 2, entries(1, 1))
    assert await backend.log.fence("m_r1", 2, 1) == Fenced(2, entries(1, 1))


async def test_an_append_under_another_attempt_is_refused(backend: Backend) -> None:
    await backend.log.fence("m_r1", 2, 1)
    assert await backend.log.append("m_r1", 2, 1, entries(1, 1)) is Append.STALE
    assert await backend.log.append("m_r1", 2, 2, entries(1, 1)) is Append.DONE


async def test_a_log_of_an_earlier_attempt_counts_as_missing(backend: Backend) -> None:
    await backend.log.fence("m_r1", 1, 1)
    await backend.log.append("m_r1", 1, 1, entries(1, 3))
    assert await backend.log.fence("m_r1", 3, 2) == Fenced(3, ())
    assert await backend.log.append("m_r1", 3, 3, entries(1, 1, mark="b")) is Append.DONE
    view = await backend.log.read("m_r1", 0)
    assert view is not None
    assert (view.attempt, list(view.entries)) == (3, list(entries(1, 1, mark="b")))


async def test_the_live_owner_of_a_lost_log_writes_all_of_it_again(backend: Backend) -> None:
    await backend.log.fence("m_r1", 1, 1)
    await backend.log.append("m_r1", 1, 1, entries(1, 3))
    assert await backend.log.drop(reply_ids=["m_r1"]) == 1
    assert await backend.log.read("m_r1", 0) is None
    assert await backend.log.append("m_r1", 1, 1, entries(4, 4)) is Append.MISSING
    assert await backend.log.reseed("m_r1", 1, 1, entries(1, 4)) is Append.DONE
    assert await backend.log.append("m_r1", 1, 1, entries(5, 5)) is Append.DONE
    assert await backend.log.fence("m_r1", 2, 1) == Fenced(1, entries(1, 5))


async def test_a_log_that_is_there_is_never_seeded_again(backend: Backend) -> None:
    await backend.log.fence("m_r1", 1, 1)
    assert await backend.log.reseed("m_r1", 5, 1, entries(1, 2)) is Append.STALE
    assert await backend.log.append("m_r1", 1, 1, entries(1, 1)) is Append.DONE


async def test_a_seed_with_a_hole_is_refused(backend: Backend) -> None:
    assert await backend.log.reseed("m_r1", 1, 1, entries(2, 3)) is Append.STALE
    assert await backend.log.read("m_r1", 0) is None
    assert await backend.log.reseed("m_r1", 1, 1, ()) is Append.DONE
    view = await backend.log.read("m_r1", 0)
    assert view is not None
    assert view.last == 0


async def test_racing_writers_of_one_epoch_leave_no_gap_and_no_repeat(backend: Backend) -> None:
    await backend.log.fence("m_r1", 1, 1)
    racing = [
        backend.log.append("m_r1", 1, 1, entries(n, n, mark=mark))
        for n in range(1, 21)
        for mark in "ab"
    ]
    answers = await asyncio.gather(*racing)
    assert answers.count(Append.DONE) == 20
    view = await backend.log.read("m_r1", 0)
    assert view is not None
    assert [entry.seq for entry in view.entries] == list(range(1, 21))


async def test_a_view_that_was_read_never_changes(backend: Backend) -> None:
    await backend.log.fence("m_r1", 1, 1)
    await backend.log.append("m_r1", 1, 1, entries(1, 2))
    view = await backend.log.read("m_r1", 0)
    fenced = await backend.log.fence("m_r1", 2, 1)
    await backend.log.append("m_r1", 2, 1, entries(3, 3))
    assert view is not None
    assert fenced is not None
    assert (len(view.entries), len(fenced.entries)) == (2, 2)


async def test_a_change_between_read_and_wait_is_not_missed(backend: Backend) -> None:
    await backend.log.fence("m_r1", 1, 1)
    await backend.log.read("m_r1", 0)
    await backend.log.append("m_r1", 1, 1, entries(1, 1))
    async with asyncio.timeout(PROMPT_S):
        await backend.log.wait("m_r1", 1, 0, timeout_s=LONG_S)


async def test_a_change_while_waiting_wakes_everyone(backend: Backend) -> None:
    await backend.log.fence("m_r1", 1, 1)
    await _wakes_all(backend, 1, 0, backend.log.append("m_r1", 1, 1, entries(1, 1)))


async def test_a_wait_begins_while_an_append_is_on_its_way(backend: Backend) -> None:
    await backend.log.fence("m_r1", 1, 1)
    async with asyncio.timeout(PROMPT_S):
        for n in range(1, 30):
            await asyncio.gather(
                backend.log.append("m_r1", 1, 1, entries(n, n)),
                backend.log.wait("m_r1", 1, n - 1, timeout_s=LONG_S),
            )


async def test_the_birth_of_a_log_wakes(backend: Backend) -> None:
    assert await backend.log.read("m_r1", 0) is None
    await _wakes_all(backend, 0, 0, backend.log.fence("m_r1", 1, 1))


async def test_the_loss_of_a_log_wakes(backend: Backend) -> None:
    await backend.log.fence("m_r1", 1, 1)
    await backend.log.append("m_r1", 1, 1, entries(1, 2))
    await _wakes_all(backend, 1, 2, backend.log.drop(reply_ids=["m_r1"]))
    async with asyncio.timeout(PROMPT_S):
        await backend.log.wait("m_r1", 1, 2, timeout_s=LONG_S)


async def test_another_attempt_wakes(backend: Backend) -> None:
    await backend.log.fence("m_r1", 1, 1)
    await backend.log.append("m_r1", 1, 1, entries(1, 2))
    await _wakes_all(backend, 1, 2, backend.log.fence("m_r1", 2, 2))


async def test_a_refused_append_is_no_news(backend: Backend) -> None:
    await backend.log.fence("m_r1", 1, 1)
    waiting = asyncio.create_task(backend.log.wait("m_r1", 1, 0, timeout_s=LONG_S))
    await backend.log.append("m_r1", 1, 1, entries(2, 2))
    assert not waiting.done()
    waiting.cancel()


async def test_a_wait_ends_by_itself(backend: Backend) -> None:
    await backend.log.fence("m_r1", 1, 1)
    async with asyncio.timeout(PROMPT_S):
        await backend.log.wait("m_r1", 1, 0, timeout_s=0.01)
        await backend.log.wait("m_unknown", 1, 0, timeout_s=0.01)


async def test_a_missing_log_is_waited_for_only_by_those_who_have_nothing(
    backend: Backend,
) -> None:
    async with asyncio.timeout(PROMPT_S):
        await backend.log.wait("m_r1", 1, 7, timeout_s=LONG_S)
    waiting = asyncio.create_task(backend.log.wait("m_r1", 1, 0, timeout_s=LONG_S))
    await backend.log.read("m_other", 0)
    assert not waiting.done()
    waiting.cancel()


async def test_a_cancelled_wait_leaves_nothing_behind(backend: Backend) -> None:
    await backend.log.fence("m_r1", 1, 1)
    waiting = asyncio.create_task(backend.log.wait("m_r1", 1, 0, timeout_s=LONG_S))
    await backend.log.read("m_r1", 0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await backend.log.append("m_r1", 1, 1, entries(1, 1)) is Append.DONE


async def test_logs_are_dropped_by_when_their_turn_finished(
    backend: Backend, clock: ManualClock
) -> None:
    for n in (1, 2, 3):
        await admitted(backend, stateless(n))
        held = await claimed(backend)
        await backend.log.fence(f"m_r{n}", held.epoch, 1)
        await backend.queue.release([(f"m_r{n}", 1)])
    await _finish(backend, "m_r1")
    clock.pass_(600)
    await _finish(backend, "m_r2")
    assert await backend.log.drop(older_than_s=600) == 1
    assert await backend.log.read("m_r1", 0) is None
    assert await backend.log.read("m_r2", 0) is not None
    assert await backend.log.drop(older_than_s=0) == 1
    assert await backend.log.read("m_r3", 0) is not None  # its turn is open
    assert await backend.log.drop(reply_ids=["m_r1", "m_r3", "m_unknown"]) == 1
    assert await backend.log.drop() == 0


async def test_the_log_of_a_deleted_turn_refuses_every_writer(
    backend: Backend, clock: ManualClock
) -> None:
    await conversation(backend)
    await admitted(backend, message(1))
    held = await claimed(backend)
    await backend.log.fence("m_r1", held.epoch, 1)
    await backend.log.append("m_r1", held.epoch, 1, entries(1, 2))
    waiting = asyncio.create_task(backend.log.wait("m_r1", 1, 2, timeout_s=LONG_S))
    assert await backend.conversations.delete("ana", "c_1") == ("m_r1",)
    async with asyncio.timeout(PROMPT_S):
        await waiting
    for later in (0, 3590):
        clock.pass_(later)
        await backend.log.drop(older_than_s=0)
        await backend.log.drop(reply_ids=["m_r1"])
        assert await backend.log.append("m_r1", 1, 1, entries(3, 3)) is Append.STALE
        assert await backend.log.reseed("m_r1", 1, 1, entries(1, 3)) is Append.STALE
        assert await backend.log.fence("m_r1", 9, 1) is None
        assert await backend.log.read("m_r1", 0) is None


async def test_a_reply_that_was_never_logged_can_be_deleted_too(backend: Backend) -> None:
    await conversation(backend)
    await answered(backend, message(1))
    assert await backend.conversations.delete("ana", "c_1") == ()
    assert await backend.log.fence("m_r1", 2, 1) is None


async def _finish(backend: Backend, reply_id: str) -> None:
    found = await backend.turns.find("ana", reply_id)
    assert found is not None
    assert await backend.turns.finish(reply_id, found.epoch, completed())


async def _wakes_all(
    backend: Backend, attempt: int, after: int, change: Coroutine[Any, Any, object]
) -> None:
    waiting = [
        asyncio.create_task(backend.log.wait("m_r1", attempt, after, timeout_s=LONG_S))
        for _ in range(5)
    ]
    await backend.log.read("m_r1", 0)
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    await change
    async with asyncio.timeout(PROMPT_S):
        await asyncio.gather(*waiting)
