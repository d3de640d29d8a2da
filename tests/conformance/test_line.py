"""Promises about the line: ranks that are fair between users, lanes that may be claimed, and what
those who wait are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tertulia.core.types import Failure, Lane, NewTurn, Note, Reason, Status
from tertulia.core.waiting import Claimable, LaneState
from tests.conformance.world import (
    LEASE_S,
    PLENTY,
    START,
    Backend,
    ManualClock,
    admitted,
    claimed,
    completed,
    conversation,
    message,
    stateless,
)

pytestmark = pytest.mark.anyio

BATCH = replace(PLENTY, lane=Lane.BATCH)
PLUS = replace(PLENTY, lane=Lane.PLUS)


async def ask(backend: Backend, *asked: NewTurn) -> None:
    for new in asked:
        await admitted(backend, new)


async def order(backend: Backend, n: int) -> list[str]:
    return [(await claimed(backend)).reply_id for _ in range(n)]


async def claimable(backend: Backend, lowest: Lane | None, ranked_slots: int = 0) -> str | None:
    turn = await backend.queue.claim(lease_s=LEASE_S, may=Claimable(lowest, ranked_slots))
    return turn.reply_id if turn is not None else None


# Ranks.


async def test_the_turns_of_one_user_go_in_the_order_in_which_he_asked(backend: Backend) -> None:
    await ask(backend, *(stateless(n) for n in (3, 1, 2)))
    assert await order(backend, 3) == ["m_r3", "m_r1", "m_r2"]


async def test_a_newcomer_waits_behind_one_turn_of_a_heavy_user(
    backend: Backend, clock: ManualClock
) -> None:
    await ask(backend, *(stateless(n) for n in range(1, 6)))
    clock.pass_(1)
    await ask(backend, stateless(6, owner="ben"))
    assert await order(backend, 6) == ["m_r1", "m_r6", "m_r2", "m_r3", "m_r4", "m_r5"]


async def test_a_huge_prompt_is_its_askers_share_for_a_while(backend: Backend) -> None:
    await ask(
        backend,
        stateless(1, prompt_tokens=9_000),
        stateless(2),
        *(stateless(n, owner="ben") for n in range(3, 8)),
    )
    assert await order(backend, 7) == ["m_r1", "m_r3", "m_r4", "m_r5", "m_r6", "m_r7", "m_r2"]


async def test_having_been_away_is_no_credit(backend: Backend, clock: ManualClock) -> None:
    """He was served while nobody else was there; nobody gets that back from him later."""
    for n in range(1, 6):
        await ask(backend, stateless(n))
        await backend.turns.finish((await claimed(backend)).held, completed())
    clock.pass_(60)
    await ask(backend, stateless(6), stateless(7))
    clock.pass_(1)
    await ask(backend, stateless(8, owner="ben"), stateless(9, owner="ben"))
    assert await order(backend, 4) == ["m_r6", "m_r8", "m_r7", "m_r9"]


async def test_what_a_turn_did_not_cost_is_its_owners_again(
    backend: Backend, clock: ManualClock
) -> None:
    """It was taken to cost 900 units and did 282: the owner's next turn stands so much further in
    front."""
    await ask(backend, stateless(1))
    held = await claimed(backend)
    await ask(backend, stateless(2), stateless(3, owner="ben"))
    assert await backend.turns.finish(held.held, completed())
    clock.pass_(1)
    for n, owner in ((4, "ana"), (5, "ben"), (6, "ben"), (7, "ana")):
        await ask(backend, stateless(n, owner=owner))
    assert await order(backend, 6) == ["m_r2", "m_r3", "m_r4", "m_r5", "m_r7", "m_r6"]


async def test_a_turn_that_was_deleted_while_it_waited_has_cost_nothing(backend: Backend) -> None:
    await conversation(backend)
    await ask(backend, stateless(1, owner="ben"), message(2))
    assert await backend.conversations.delete("ana", "c_1") == ("m_r2",)
    await ask(backend, stateless(4, owner="ben"), stateless(3))
    assert await order(backend, 3) == ["m_r1", "m_r3", "m_r4"]


async def test_a_turn_that_was_generated_for_and_deleted_has_cost_all_that_was_reserved(
    backend: Backend,
) -> None:
    await conversation(backend)
    await ask(backend, stateless(1, owner="ben"), message(2))
    assert (await claimed(backend, skip=("m_r1",))).reply_id == "m_r2"
    assert await backend.conversations.delete("ana", "c_1") == ("m_r2",)
    await ask(backend, stateless(3), stateless(4, owner="eva"))
    assert await order(backend, 3) == ["m_r1", "m_r4", "m_r3"]


async def test_a_turn_that_was_begun_goes_before_those_that_never_were(backend: Backend) -> None:
    await ask(backend, stateless(1), stateless(2), stateless(3, owner="ben"))
    last = await claimed(backend, skip=("m_r1", "m_r3"))
    await backend.queue.release([last.held])
    assert await order(backend, 3) == ["m_r2", "m_r1", "m_r3"]


async def test_a_turn_that_runs_again_stands_at_the_end_of_its_line(backend: Backend) -> None:
    await ask(backend, stateless(1))
    held = await claimed(backend)
    failed = completed(
        status=Status.FAILED, finish=None, failure=Failure("busy", "No room.", retryable=True)
    )
    assert await backend.turns.finish(held.held, failed)
    await ask(backend, stateless(2), stateless(3, owner="ben"), stateless(1))
    assert await order(backend, 3) == ["m_r2", "m_r3", "m_r1"]


async def test_what_somebody_has_in_one_lane_does_not_count_in_another(
    backend: Backend, clock: ManualClock
) -> None:
    for n in range(1, 4):
        await admitted(backend, stateless(n), BATCH)
    await ask(backend, stateless(4))
    clock.pass_(1)
    await ask(backend, stateless(5, owner="ben"))
    assert (await order(backend, 2))[0] == "m_r4"


# Lanes that may be claimed.


async def test_only_the_lanes_that_may_be_are_claimed(backend: Backend) -> None:
    await admitted(backend, stateless(1), BATCH)
    await admitted(backend, stateless(2))
    await admitted(backend, stateless(3), PLUS)
    assert await claimable(backend, None) is None
    assert await claimable(backend, Lane.FREE) == "m_r3"
    assert await claimable(backend, Lane.PLUS) is None
    assert await claimable(backend, Lane.FREE) == "m_r2"
    assert await claimable(backend, Lane.FREE) is None
    assert await claimable(backend, Lane.BATCH) == "m_r1"


async def test_chat_goes_before_a_batch_also_where_both_may_be_claimed(backend: Backend) -> None:
    await admitted(backend, stateless(1), BATCH)
    await admitted(backend, stateless(2))
    assert await claimable(backend, Lane.BATCH) == "m_r2"
    assert await claimable(backend, Lane.BATCH) == "m_r1"


async def test_without_room_a_turn_is_claimed_where_one_of_a_lane_behind_it_runs(
    backend: Backend,
) -> None:
    await admitted(backend, stateless(1), BATCH)
    await admitted(backend, stateless(2))
    assert await order(backend, 2) == ["m_r2", "m_r1"]
    for n in (3, 4, 5):
        await admitted(backend, stateless(n), PLUS)
    await admitted(backend, stateless(6))
    await admitted(backend, stateless(7), BATCH)
    slots = 2  # full: of a free turn and a batch's, both of which an engine would put aside
    assert await claimable(backend, None, slots) == "m_r3"
    assert await claimable(backend, None, slots) == "m_r4"
    assert await claimable(backend, None, slots) is None
    assert await claimable(backend, None, slots + 3) == "m_r5"
    assert await claimable(backend, None, slots + 3) == "m_r6"
    assert await claimable(backend, None, slots + 30) is None  # a batch puts nobody aside


async def test_a_batch_may_wait_for_as_long_as_it_takes(
    backend: Backend, clock: ManualClock
) -> None:
    await admitted(backend, stateless(1), BATCH)
    await admitted(backend, stateless(2))
    clock.pass_(10_000)
    found = await backend.queue.stale(held_age_s=60, queued_age_s=300)
    assert [turn.reply_id for turn in found] == ["m_r2"]


# What is seen of it.


async def test_an_empty_line_is_seen_as_that(backend: Backend) -> None:
    view = await backend.line.look([("ana", "m_r1")])
    assert view.at == START
    assert {lane: view.lane(lane) for lane in Lane} == {lane: LaneState() for lane in Lane}
    assert dict(view.places) == {}


async def test_each_lane_is_counted(backend: Backend) -> None:
    await admitted(backend, stateless(1), PLUS)
    await admitted(backend, stateless(2), BATCH)
    for n in (3, 4, 5):
        await admitted(backend, stateless(n))
    assert await order(backend, 2) == ["m_r1", "m_r3"]
    view = await backend.line.look([])
    assert view.lane(Lane.PLUS) == LaneState(queued=0, running=1, begun=1)
    assert view.lane(Lane.FREE) == LaneState(queued=2, running=1, begun=1)
    assert view.lane(Lane.BATCH) == LaneState(queued=1, running=0, begun=0)
    assert dict(view.places) == {}


async def test_places_are_counted_over_all_lanes_in_the_order_of_claims(backend: Backend) -> None:
    await admitted(backend, stateless(1), BATCH)
    await ask(backend, stateless(2), stateless(3), stateless(4, owner="ben"))
    await admitted(backend, stateless(5), PLUS)
    pairs = [("ana", f"m_r{n}") for n in (1, 2, 3, 5)]
    view = await backend.line.look([*pairs, ("ben", "m_r4"), ("ben", "m_r3"), ("eva", "m_r2")])
    assert dict(view.places) == {"m_r5": 1, "m_r2": 2, "m_r4": 3, "m_r3": 4, "m_r1": 5}
    assert (await claimed(backend)).reply_id == "m_r5"
    view = await backend.line.look(pairs)
    assert dict(view.places) == {"m_r2": 1, "m_r3": 3, "m_r1": 4}


async def test_another_users_place_is_not_told(backend: Backend) -> None:
    await ask(backend, stateless(1))
    assert dict((await backend.line.look([("ben", "m_r1")])).places) == {}


async def test_a_turn_begins_once_however_often_it_is_claimed(backend: Backend) -> None:
    await ask(backend, stateless(1))
    held = await claimed(backend)
    await backend.queue.release([held.held])
    await claimed(backend)
    view = await backend.line.look([("ana", "m_r1")])
    assert view.lane(Lane.FREE) == LaneState(queued=0, running=1, begun=1)


async def test_a_turn_that_is_being_stopped_neither_waits_nor_runs(backend: Backend) -> None:
    await ask(backend, stateless(1), stateless(2))
    assert await backend.turns.seize("ana", "m_r1", "stopped") is not None
    view = await backend.line.look([("ana", "m_r1"), ("ana", "m_r2")])
    assert view.lane(Lane.FREE) == LaneState(queued=1, running=0, begun=0)
    assert dict(view.places) == {"m_r2": 1}


# Several models before one line.

ANY, FULL_FOR_FREE = Lane.FREE, ((Lane.FREE, "large"), (Lane.FREE, "lab/large"))


async def claimed_while_full(backend: Backend) -> str | None:
    turn = await backend.queue.claim(lease_s=LEASE_S, may=Claimable(ANY, 0, FULL_FOR_FREE))
    return turn.reply_id if turn is not None else None


async def test_a_turn_whose_model_is_full_lets_others_pass_and_goes_on_waiting(
    backend: Backend,
) -> None:
    await ask(backend, stateless(1, awaited="large"), stateless(2, awaited="lab/large"))
    await ask(backend, stateless(3), stateless(4, awaited="small", owner="ben"))
    passed = {await claimed_while_full(backend) for _ in range(2)}
    assert passed == {"m_r3", "m_r4"}
    assert await claimed_while_full(backend) is None
    assert await order(backend, 2) == ["m_r1", "m_r2"]


async def test_a_model_that_is_full_for_one_lane_is_not_for_another(backend: Backend) -> None:
    await ask(backend, stateless(1, awaited="large"))
    await admitted(backend, stateless(2, awaited="large"), PLUS)
    assert await claimed_while_full(backend) == "m_r2"
    assert await claimed_while_full(backend) is None


async def test_where_engines_put_others_aside_a_full_model_is_waited_for_as_well(
    backend: Backend,
) -> None:
    await admitted(backend, stateless(1, awaited="large"), PLUS)
    await admitted(backend, stateless(2), PLUS)
    full = ((Lane.PLUS, "large"),)
    turn = await backend.queue.claim(lease_s=LEASE_S, may=Claimable(None, 4, full))
    assert turn is not None
    assert turn.reply_id == "m_r2"


async def test_a_turn_that_was_begun_is_claimed_however_full_its_model_is(
    backend: Backend, clock: ManualClock
) -> None:
    await ask(backend, stateless(1, awaited="large"))
    await claimed(backend)
    clock.pass_(LEASE_S + 1)
    assert await claimed_while_full(backend) == "m_r1"


async def test_what_is_awaited_and_why_it_is_the_small_model_stays_with_the_turn(
    backend: Backend,
) -> None:
    await conversation(backend)
    asked = message(1, awaited="small", lowered=Reason.OVERFLOW)
    turn = await admitted(backend, asked)
    assert (turn.awaited, turn.reason, turn.model) == ("small", Reason.OVERFLOW, None)
    held = await claimed(backend)
    assert (held.awaited, held.reason, held.model) == ("small", Reason.OVERFLOW, None)
    failed = completed(
        status=Status.FAILED, finish=None, failure=Failure("busy", "No room.", retryable=True)
    )
    assert await backend.turns.finish(held.held, failed)
    again = await admitted(backend, asked._replace(awaited="large", lowered=None))
    assert (again.awaited, again.reason) == ("large", None)
    found = await backend.turns.find("ana", "m_r1")
    assert found is not None
    assert (found.awaited, found.reason) == ("large", None)


async def test_the_line_is_seen_model_by_model(backend: Backend) -> None:
    await ask(backend, *(stateless(n, awaited="large") for n in (1, 2, 3)))
    await admitted(backend, stateless(4, awaited="small"), BATCH)
    await ask(backend, stateless(5, owner="ben"))
    assert await order(backend, 2) == ["m_r1", "m_r5"]
    turn = await backend.turns.find("ana", "m_r1")
    assert turn is not None
    assert await backend.turns.note(turn.held, note("lab/large"))
    view = await backend.line.look([])
    assert dict(view.awaiting) == {(Lane.FREE, "large"): 2, (Lane.BATCH, "small"): 1}
    assert dict(view.running_on) == {"lab/large": 1}


def note(model: str) -> Note:
    return Note(1, model, Reason.PICKED, "replica-1", "m_r1-1-1", 100, "keep")
