"""Promises of the `Log` port: one writer at a time, numbers without gap, and no missed wake-up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tertulia.core.types import Append, Entry, Fenced
from tertulia.ports import Log
from tests.conformance.world import entries

pytestmark = pytest.mark.anyio

LONG_S = 50.0  # a test that waits so long has failed
PROMPT_S = 20.0


async def test_the_first_fence_creates_an_empty_log_under_the_turns_attempt(
    log: Log,
) -> None:
    assert await log.read("m_r1", 0) is None
    assert await log.fence("m_r1", 1, 1) == Fenced(1, ())
    view = await log.read("m_r1", 0)
    assert view is not None
    assert (view.attempt, view.last, list(view.entries)) == (1, 0, [])


async def test_a_log_that_was_lost_with_its_owner_begins_another_attempt(
    log: Log,
) -> None:
    assert await log.fence("m_r1", 4, 1) == Fenced(2, ())


async def test_entries_go_on_without_gap_and_are_read_as_they_were_written(
    log: Log,
) -> None:
    await log.fence("m_r1", 1, 1)
    assert await log.append("m_r1", 1, 1, entries(1, 2)) is Append.DONE
    tricky = Entry(3, "delta", '{"text":"né\\u0000🙂"}'.encode(), bytes(range(256)))
    assert await log.append("m_r1", 1, 1, [tricky]) is Append.DONE
    for after in range(5):
        view = await log.read("m_r1", after)
        assert view is not None
        assert list(view.entries) == [*entries(1, 2), tricky][after:]
        assert view.last == 3


@pytest.mark.parametrize(
    "wrong",
    [
        entries(1, 1),
        entries(2, 3),
        entries(2, 2, mark="b"),
        (*entries(3, 3), *entries(5, 5)),
        entries(0, 3),
    ],
    ids=["begun again", "repeated in part", "other bytes", "a hole inside", "from zero"],
)
async def test_entries_with_a_wrong_number_are_refused_whole(
    log: Log, wrong: tuple[Entry, ...]
) -> None:
    await log.fence("m_r1", 1, 1)
    await log.append("m_r1", 1, 1, entries(1, 2))
    assert await log.append("m_r1", 1, 1, wrong) is Append.STALE
    view = await log.read("m_r1", 0)
    assert view is not None
    assert list(view.entries) == list(entries(1, 2))
    assert await log.append("m_r1", 1, 1, entries(3, 3)) is Append.DONE


async def test_a_writer_that_did_not_hear_the_answer_asks_again(log: Log) -> None:
    await log.fence("m_r1", 1, 1)
    for some in (entries(1, 2), entries(3, 5)):
        assert await log.append("m_r1", 1, 1, some) is Append.DONE
        assert await log.append("m_r1", 1, 1, some) is Append.DONE
    assert await log.append("m_r1", 1, 1, entries(2, 5)) is Append.DONE
    view = await log.read("m_r1", 0)
    assert view is not None
    assert list(view.entries) == list(entries(1, 5))
    await log.fence("m_r1", 2, 1)
    assert await log.append("m_r1", 1, 1, entries(3, 5)) is Append.STALE


async def test_a_log_that_lost_its_end_is_written_again_by_its_holder(log: Log) -> None:
    await log.fence("m_r1", 1, 1)
    await log.append("m_r1", 1, 1, entries(1, 2))
    assert await log.append("m_r1", 2, 1, entries(5, 5)) is Append.STALE
    assert await log.append("m_r1", 1, 1, entries(5, 5)) is Append.MISSING
    assert await log.reseed("m_r1", 1, 1, entries(1, 4)) is Append.DONE
    assert await log.append("m_r1", 1, 1, entries(5, 5)) is Append.DONE
    view = await log.read("m_r1", 1)
    assert view is not None
    assert list(view.entries) == list(entries(2, 5))


async def test_a_holder_that_did_not_hear_that_it_wrote_all_again_does_it_again(log: Log) -> None:
    for _ in range(2):
        assert await log.reseed("m_r1", 3, 1, entries(1, 4)) is Append.DONE
    view = await log.read("m_r1", 0)
    assert view is not None
    assert list(view.entries) == list(entries(1, 4))
    assert await log.reseed("m_r1", 3, 1, entries(1, 3)) is Append.STALE
    assert await log.reseed("m_r1", 2, 1, entries(1, 5)) is Append.STALE
    assert await log.reseed("m_r1", 3, 2, entries(1, 5)) is Append.STALE


async def test_appending_nothing_tells_whether_one_may(log: Log) -> None:
    assert await log.append("m_r1", 1, 1, ()) is Append.MISSING
    await log.fence("m_r1", 1, 1)
    assert await log.append("m_r1", 1, 1, ()) is Append.DONE
    await log.fence("m_r1", 2, 1)
    assert await log.append("m_r1", 1, 1, ()) is Append.STALE


async def test_a_later_fence_takes_the_log_and_shuts_the_earlier_holder_out(
    log: Log,
) -> None:
    await log.fence("m_r1", 1, 1)
    await log.append("m_r1", 1, 1, entries(1, 3))
    assert await log.fence("m_r1", 2, 1) == Fenced(1, entries(1, 3))
    assert await log.append("m_r1", 1, 1, entries(4, 4)) is Append.STALE
    assert await log.append("m_r1", 2, 1, entries(4, 4)) is Append.DONE
    assert await log.fence("m_r1", 1, 1) is None


async def test_the_holder_can_fence_again(log: Log) -> None:
    await log.fence("m_r1", 2, 1)
    await log.append("m_r1", 2, 2, entries(1, 1))
    assert await log.fence("m_r1", 2, 1) == Fenced(2, entries(1, 1))


async def test_an_append_under_another_attempt_is_refused(log: Log) -> None:
    await log.fence("m_r1", 2, 1)
    assert await log.append("m_r1", 2, 1, entries(1, 1)) is Append.STALE
    assert await log.append("m_r1", 2, 2, entries(1, 1)) is Append.DONE


async def test_a_log_of_an_earlier_attempt_counts_as_missing(log: Log) -> None:
    await log.fence("m_r1", 1, 1)
    await log.append("m_r1", 1, 1, entries(1, 3))
    assert await log.fence("m_r1", 3, 2) == Fenced(3, ())
    assert await log.append("m_r1", 3, 3, entries(1, 1, mark="b")) is Append.DONE
    view = await log.read("m_r1", 0)
    assert view is not None
    assert (view.attempt, list(view.entries)) == (3, list(entries(1, 1, mark="b")))


async def test_the_live_owner_of_a_lost_log_writes_all_of_it_again(log: Log) -> None:
    await log.fence("m_r1", 1, 1)
    await log.append("m_r1", 1, 1, entries(1, 3))
    assert await log.drop(reply_ids=["m_r1"]) == 1
    assert await log.read("m_r1", 0) is None
    assert await log.append("m_r1", 1, 1, entries(4, 4)) is Append.MISSING
    assert await log.reseed("m_r1", 1, 1, entries(1, 4)) is Append.DONE
    assert await log.append("m_r1", 1, 1, entries(5, 5)) is Append.DONE
    assert await log.fence("m_r1", 2, 1) == Fenced(1, entries(1, 5))


async def test_a_log_that_is_there_is_never_seeded_again(log: Log) -> None:
    await log.fence("m_r1", 1, 1)
    assert await log.reseed("m_r1", 5, 1, entries(1, 2)) is Append.STALE
    assert await log.append("m_r1", 1, 1, entries(1, 1)) is Append.DONE


async def test_a_seed_with_a_hole_is_refused(log: Log) -> None:
    assert await log.reseed("m_r1", 1, 1, entries(2, 3)) is Append.STALE
    assert await log.read("m_r1", 0) is None
    assert await log.reseed("m_r1", 1, 1, ()) is Append.DONE
    view = await log.read("m_r1", 0)
    assert view is not None
    assert view.last == 0


async def test_racing_writers_of_one_epoch_leave_no_gap_and_no_repeat(log: Log) -> None:
    await log.fence("m_r1", 1, 1)
    racing = [
        log.append("m_r1", 1, 1, entries(n, n, mark=mark)) for n in range(1, 21) for mark in "ab"
    ]
    answers = await asyncio.gather(*racing)
    assert answers.count(Append.DONE) == 20
    view = await log.read("m_r1", 0)
    assert view is not None
    assert [entry.seq for entry in view.entries] == list(range(1, 21))


async def test_a_view_that_was_read_never_changes(log: Log) -> None:
    await log.fence("m_r1", 1, 1)
    await log.append("m_r1", 1, 1, entries(1, 2))
    view = await log.read("m_r1", 0)
    fenced = await log.fence("m_r1", 2, 1)
    await log.append("m_r1", 2, 1, entries(3, 3))
    assert view is not None
    assert fenced is not None
    assert (len(view.entries), len(fenced.entries)) == (2, 2)


async def test_a_change_between_read_and_wait_is_not_missed(log: Log) -> None:
    await log.fence("m_r1", 1, 1)
    await log.read("m_r1", 0)
    await log.append("m_r1", 1, 1, entries(1, 1))
    async with asyncio.timeout(PROMPT_S):
        await log.wait("m_r1", 1, 0, timeout_s=LONG_S)


async def test_a_change_while_waiting_wakes_everyone(log: Log) -> None:
    await log.fence("m_r1", 1, 1)
    await _wakes_all(log, 1, 0, log.append("m_r1", 1, 1, entries(1, 1)))


async def test_a_wait_begins_while_an_append_is_on_its_way(log: Log) -> None:
    await log.fence("m_r1", 1, 1)
    async with asyncio.timeout(PROMPT_S):
        for n in range(1, 30):
            await asyncio.gather(
                log.append("m_r1", 1, 1, entries(n, n)),
                log.wait("m_r1", 1, n - 1, timeout_s=LONG_S),
            )


async def test_the_birth_of_a_log_wakes(log: Log) -> None:
    assert await log.read("m_r1", 0) is None
    await _wakes_all(log, 0, 0, log.fence("m_r1", 1, 1))


async def test_the_loss_of_a_log_wakes(log: Log) -> None:
    await log.fence("m_r1", 1, 1)
    await log.append("m_r1", 1, 1, entries(1, 2))
    await _wakes_all(log, 1, 2, log.drop(reply_ids=["m_r1"]))
    async with asyncio.timeout(PROMPT_S):
        await log.wait("m_r1", 1, 2, timeout_s=LONG_S)


async def test_another_attempt_wakes(log: Log) -> None:
    await log.fence("m_r1", 1, 1)
    await log.append("m_r1", 1, 1, entries(1, 2))
    await _wakes_all(log, 1, 2, log.fence("m_r1", 2, 2))


async def test_a_refused_append_is_no_news(log: Log) -> None:
    await log.fence("m_r1", 1, 1)
    waiting = asyncio.create_task(log.wait("m_r1", 1, 0, timeout_s=LONG_S))
    await log.append("m_r1", 1, 1, entries(2, 2))
    assert not waiting.done()
    waiting.cancel()


async def test_a_wait_ends_by_itself(log: Log) -> None:
    await log.fence("m_r1", 1, 1)
    async with asyncio.timeout(PROMPT_S):
        await log.wait("m_r1", 1, 0, timeout_s=0.01)
        await log.wait("m_unknown", 1, 0, timeout_s=0.01)


async def test_a_missing_log_is_waited_for_only_by_those_who_have_nothing(
    log: Log,
) -> None:
    async with asyncio.timeout(PROMPT_S):
        await log.wait("m_r1", 1, 7, timeout_s=LONG_S)
    waiting = asyncio.create_task(log.wait("m_r1", 1, 0, timeout_s=LONG_S))
    await log.read("m_other", 0)
    assert not waiting.done()
    waiting.cancel()


async def test_a_cancelled_wait_leaves_nothing_behind(log: Log) -> None:
    await log.fence("m_r1", 1, 1)
    waiting = asyncio.create_task(log.wait("m_r1", 1, 0, timeout_s=LONG_S))
    await log.read("m_r1", 0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await log.append("m_r1", 1, 1, entries(1, 1)) is Append.DONE


async def test_logs_are_dropped_by_name(log: Log) -> None:
    for n in range(3):
        await log.fence(f"m_r{n}", 1, 1)
    assert await log.drop(reply_ids=["m_r0", "m_r2", "m_unknown", "m_r0"]) == 2
    assert await log.read("m_r0", 0) is None
    assert await log.read("m_r1", 0) is not None
    assert await log.drop() == 0


async def test_a_buried_log_refuses_every_writer(log: Log) -> None:
    await log.fence("m_r1", 1, 1)
    await log.append("m_r1", 1, 1, entries(1, 2))
    await _wakes_all(log, 1, 2, log.bury(["m_r1", "m_unknown"]))
    for name in ("m_r1", "m_unknown"):
        assert await log.drop(reply_ids=[name]) == 0
        assert await log.append(name, 1, 1, entries(3, 3)) is Append.STALE
        assert await log.append(name, 1, 1, ()) is Append.STALE
        assert await log.reseed(name, 1, 1, entries(1, 3)) is Append.STALE
        assert await log.fence(name, 9, 1) is None
        assert await log.read(name, 0) is None


async def _wakes_all(
    log: Log, attempt: int, after: int, change: Coroutine[Any, Any, object]
) -> None:
    waiting = [
        asyncio.create_task(log.wait("m_r1", attempt, after, timeout_s=LONG_S)) for _ in range(5)
    ]
    await log.read("m_r1", 0)
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    await change
    async with asyncio.timeout(PROMPT_S):
        await asyncio.gather(*waiting)
