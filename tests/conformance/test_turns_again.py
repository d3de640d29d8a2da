"""Promises of the `Turns` port: a turn that failed begins anew under its key, or does not."""

from __future__ import annotations

import asyncio

import pytest

from tertulia.core.types import (
    Admitted,
    BudgetExhausted,
    KeyReused,
    Repeated,
    Status,
)
from tests.conformance.world import (
    FAILURE,
    PLENTY,
    START,
    Backend,
    ManualClock,
    admitted,
    answered,
    claimed,
    completed,
    conversation,
    entries,
    everything,
    failed_turn,
    message,
    note,
    regenerate,
    tokens_a_day,
    used_and_held,
)

pytestmark = pytest.mark.anyio


async def test_a_failed_turn_runs_again_under_its_key_with_its_ids(
    backend: Backend, clock: ManualClock
) -> None:
    await conversation(backend)
    failed = await failed_turn(backend, 1)
    assert failed.failure == FAILURE
    clock.pass_(10)
    again = message(1)._replace(reply_id="m_other", answer_tokens=500)
    turn = await admitted(backend, again)
    assert (turn.reply_id, turn.user_message_id) == ("m_r1", "m_u1")
    assert (turn.status, turn.epoch) == (Status.QUEUED, failed.epoch + 1)
    assert turn.attempt > failed.attempt
    assert (turn.reserved, turn.failure, turn.text) == (600, None, "")
    assert (turn.finished_at, turn.created_at) == (None, START + 10)
    reply = await backend.messages.find("ana", "m_r1")
    assert reply is not None
    assert (reply.status, reply.content, reply.ids) == (Status.QUEUED, "", None)
    view = await backend.log.read("m_r1", 0)
    assert view is None or (view.attempt, view.last) == (turn.attempt, 0)
    assert await used_and_held(backend, "ana") == (40, 600, ("m_r1",))


async def test_the_old_owner_of_a_turn_that_runs_again_can_write_nothing(backend: Backend) -> None:
    await conversation(backend)
    failed = await failed_turn(backend, 1)
    await admitted(backend, message(1))
    assert not await note(backend, failed)
    assert not await backend.turns.finish(failed.held, completed())
    answer = await backend.log.append("m_r1", failed.epoch, 1, entries(4, 4))
    assert answer in ("stale", "missing")
    if answer == "missing":  # it believes that its log was lost, and writes it once more
        assert await backend.log.reseed("m_r1", failed.epoch, 1, entries(1, 4)) == "done"
    held = await claimed(backend)
    fenced = await backend.log.fence("m_r1", held.epoch, held.attempt)
    assert fenced is not None
    assert fenced.attempt > failed.attempt
    assert fenced.entries == ()
    assert await backend.turns.finish(held.held, completed(attempt=fenced.attempt))
    assert await used_and_held(backend, "ana") == (190, 0, ())


async def test_a_failed_turn_needs_the_same_body_and_a_budget_to_run_again(
    backend: Backend,
) -> None:
    await conversation(backend)
    await failed_turn(backend, 1)
    before = await everything(backend)
    assert await backend.turns.admit(message(1, body_sha="x"), PLENTY) == KeyReused()
    poor = tokens_a_day(100, replies_running=5)
    assert isinstance(await backend.turns.admit(message(1), poor), BudgetExhausted)
    assert await everything(backend) == before


async def test_a_failed_turn_does_not_run_again_once_something_was_said_below_it(
    backend: Backend,
) -> None:
    await conversation(backend)
    failed = await failed_turn(backend, 1)
    await admitted(backend, message(2, parent_id="m_r1"))
    before = await everything(backend)
    again = message(1, reply_id="m_other")
    nothing_left = tokens_a_day(0, replies_running=0)
    for limits in (PLENTY, nothing_left):
        assert await backend.turns.admit(again, limits) == Repeated(failed)
    assert await everything(backend) == before
    view = await backend.log.read("m_r1", 0)
    assert view is not None
    assert (view.attempt, view.last) == (failed.attempt, 3)
    assert await backend.turns.admit(message(1, body_sha="another"), PLENTY) == KeyReused()
    # Its place in the tree counts, not whether it has been answered.
    assert await backend.turns.finish((await claimed(backend)).held, completed())
    assert await backend.turns.admit(again, PLENTY) == Repeated(failed)


async def test_what_was_said_beside_a_failed_turn_is_not_in_its_way(backend: Backend) -> None:
    await conversation(backend)
    await failed_turn(backend, 1)
    await answered(backend, message(2))
    await answered(backend, regenerate(3, "m_u1"))
    await answered(backend, message(4, parent_id="m_r3"))
    assert (await admitted(backend, message(1))).status is Status.QUEUED


async def test_a_failed_turn_runs_again_once_what_was_below_it_is_deleted(backend: Backend) -> None:
    await conversation(backend)
    await failed_turn(backend, 1)
    await answered(backend, message(2, parent_id="m_r1"))
    await backend.branches.delete("ana", "m_u2")
    assert (await admitted(backend, message(1))).status is Status.QUEUED


async def test_a_failed_turn_and_what_is_said_below_it_never_run_side_by_side(
    backend: Backend,
) -> None:
    await conversation(backend)
    await failed_turn(backend, 1)
    both = (message(1), message(2, parent_id="m_r1"))
    answers = await asyncio.gather(*(backend.turns.admit(one, PLENTY) for one in both * 10))
    assert [type(answer) for answer in answers].count(Admitted) == 1


async def test_racing_reruns_begin_once(backend: Backend) -> None:
    await conversation(backend)
    await failed_turn(backend, 1)
    answers = await asyncio.gather(*(backend.turns.admit(message(1), PLENTY) for _ in range(20)))
    kinds = [type(answer) for answer in answers]
    assert (kinds.count(Admitted), kinds.count(Repeated)) == (1, 19)
